/* Cells of normalised entropy; `calibrant/accumulators/entropy_cells.py`. */
#include "grid.h"
#include "workspace.h"

enum {
    UNCERTAINTY_PREDICTIONS,
    UNCERTAINTY_WEIGHT_POOLED,
    UNCERTAINTY_WEIGHT,
    UNCERTAINTY_POOLED,
    UNCERTAINTY,
    UNCERTAINTY_CONFIDENCE_POOLED,
    UNCERTAINTY_CONFIDENCE,
    UNCERTAINTY_CORRECT, /* four policies */
    UNCERTAINTY_NULL_VARIANCE_POOLED = UNCERTAINTY_CORRECT + N_POLICIES,
    UNCERTAINTY_NULL_VARIANCE,
    N_UNCERTAINTY_COLUMNS
};

static void fill_uncertainty(Workspace *workspace, const Row *row)
{
    const Grid *grid = &workspace->model.uncertainty_grid;
    double uncertainty = row->entropy / workspace->model.log_n_classes;
    if (uncertainty > 1.0)
        uncertainty = 1.0;
    int64_t place = locate(grid, on_edge(uncertainty, grid->cells), derived_rule(row));
    double w = row->weight, pooled = w * row->n_ratings, confidence = row->confidence;
    double spread = confidence * (1.0 - confidence) * row->unit_size * (w * w);
    double *record = record_at(&workspace->tables[UNCERTAINTY_CELLS], place);
    record[UNCERTAINTY_PREDICTIONS] += 1.0;
    record[UNCERTAINTY_WEIGHT_POOLED] += pooled;
    record[UNCERTAINTY_WEIGHT] += w;
    record[UNCERTAINTY_POOLED] += pooled * uncertainty;
    record[UNCERTAINTY] += w * uncertainty;
    record[UNCERTAINTY_CONFIDENCE_POOLED] += pooled * confidence;
    record[UNCERTAINTY_CONFIDENCE] += w * confidence;
    for (int policy = 0; policy < N_POLICIES; policy++)
        record[UNCERTAINTY_CORRECT + policy] += w * row->top_hits.ratings[policy];
    record[UNCERTAINTY_NULL_VARIANCE_POOLED] += spread * (row->n_ratings * row->n_ratings);
    record[UNCERTAINTY_NULL_VARIANCE] += spread;
}
