/* Rows against their ratings; `disagreement.py`, `label_uncertainty.py`, with `calibrant/raters/label_rows.py`. */
#include "grid.h"
#include "workspace.h"

#define DISAGREEMENT_BINS 15

enum {
    MOMENT_WEIGHT,
    MOMENT_PREDICTED,
    MOMENT_DISAGREEMENT,
    MOMENT_PREDICTED_SQUARED,
    MOMENT_PRODUCT,
    MOMENT_WEIGHT_SQUARED,
    MOMENT_DISAGREEMENT_WEIGHT_SQUARED,
    MOMENT_DISAGREEMENT_SQUARED_WEIGHT_SQUARED,
    MOMENT_EPISTEMIC,
    N_MOMENTS
};

/* Statistics of one row; `LabelRows` in numpy. */
typedef struct {
    double squared_gap, spread, predicted, correction, disagreement, disagreement_loss;
} LabelRow;

static LabelRow label_row(const Row *row)
{
    LabelRow result;
    double n = row->n_ratings, squared_ratings = 0.0;
    for (int64_t i = 0; i < row->n_rated; i++)
        squared_ratings += (double)row->ratings[i] * (double)row->ratings[i];
    double share_squared = squared_ratings / (n * n), cross = row->rated_probability / n;
    double gap = share_squared - 2.0 * cross + row->squares;
    result.squared_gap = gap > 0.0 ? gap : 0.0;
    result.spread = 1.0 - share_squared;
    result.predicted = 1.0 - row->squares;
    result.correction = n > 1.0 ? result.spread / (n - 1.0) : 0.0;
    result.disagreement = result.spread + result.correction;
    result.disagreement_loss =
        n > 1.0 ? result.predicted * (result.predicted - 2.0 * result.disagreement) + result.disagreement : 0.0;
    return result;
}

static void add_moments(double *sums, const LabelRow *row, double weight)
{
    double square = weight * weight, observed = row->disagreement, predicted = row->predicted;
    sums[MOMENT_WEIGHT] += weight;
    sums[MOMENT_PREDICTED] += weight * predicted;
    sums[MOMENT_DISAGREEMENT] += weight * observed;
    sums[MOMENT_PREDICTED_SQUARED] += weight * (predicted * predicted);
    sums[MOMENT_PRODUCT] += weight * predicted * observed;
    sums[MOMENT_WEIGHT_SQUARED] += square;
    sums[MOMENT_DISAGREEMENT_WEIGHT_SQUARED] += square * observed;
    sums[MOMENT_DISAGREEMENT_SQUARED_WEIGHT_SQUARED] += square * (observed * observed);
    sums[MOMENT_EPISTEMIC] += weight * (row->squared_gap - row->correction);
}

/* Only rows with at least two ratings. */
static void fill_disagreement(Workspace *workspace, const Row *row, const LabelRow *own)
{
    if (row->n_ratings < 2.0)
        return;
    /* A row may miss a sum of one by 1e-9; only its cell is bounded. */
    double score = own->predicted < 0.0 ? 0.0 : own->predicted > 1.0 ? 1.0 : own->predicted;
    double *cell = record_at(&workspace->tables[DISAGREEMENT_CELLS], locate(&workspace->model.disagreement_grid, score, derived_rule(row)));
    cell[0] += 1.0;
    add_moments(cell + 1, own, row->weight);
    add_moments(cell + 1 + N_MOMENTS, own, row->weight * row->n_ratings);
    int64_t bin = row->replicate * DISAGREEMENT_BINS + equal_width_bin(score, DISAGREEMENT_BINS, derived_rule(row));
    double *replicate = record_at(&workspace->tables[DISAGREEMENT_REPLICATES], bin);
    replicate[0] += 1.0;
    replicate[1 + MOMENT_WEIGHT] += row->weight;
    replicate[1 + MOMENT_PREDICTED] += row->weight * own->predicted;
    replicate[1 + MOMENT_DISAGREEMENT] += row->weight * own->disagreement;
}

/* By replicate and by one rating or several, for weight one and for weight n. */
static void fill_label_uncertainty(Workspace *workspace, const Row *row, const LabelRow *own)
{
    const double columns[] = {1.0, own->squared_gap, own->spread, own->correction, own->disagreement_loss};
    double *record = record_at(&workspace->tables[LABEL_UNCERTAINTY_SUMS], 2 * row->replicate + (row->n_ratings > 1.0));
    record[0] += 1.0;
    record[1] += row->n_ratings;
    for (int i = 0; i < 5; i++) {
        record[2 + i] += row->weight * columns[i];
        record[7 + i] += row->weight * row->n_ratings * columns[i];
    }
}
