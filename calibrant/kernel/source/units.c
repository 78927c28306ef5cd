/* Sums in which every unit has weight one; `calibrant/accumulators/units.py`. */
#include "grid.h"
#include "workspace.h"

enum {
    UNIT_PREDICTIONS,
    UNIT_LABELLED,
    UNIT_OCCUPANCY,
    UNIT_WEIGHT,
    UNIT_CONFIDENCE,
    UNIT_CORRECT_MEAN,
    UNIT_CORRECT_MAJORITY,
    UNIT_CORRECT_SINGLE,
    UNIT_WEIGHT_SQUARED,
    UNIT_WEIGHT_POOLED,
    UNIT_CONFIDENCE_POOLED,
    UNIT_CORRECT_POOLED,
    UNIT_WEIGHT_SQUARED_POOLED,
    N_UNIT_COLUMNS
};

/* Add a row, labelled or not, of a unit of so many rows. */
static void fill_occupancy(Workspace *workspace, const double *probabilities, double unit_size, enum edge_rule rule)
{
    const Model *model = &workspace->model;
    double score = probabilities[1];
    if (!model->is_binary)
        for (int64_t k = 0; k < model->n_classes; k++)
            score = probabilities[k] > score ? probabilities[k] : score;
    double *record = record_at(&workspace->tables[UNITS_BINS], equal_width_bin(score, UNIT_BINS, rule));
    record[UNIT_PREDICTIONS] += 1.0;
    record[UNIT_OCCUPANCY] += 1.0 / unit_size;
}

/* Add the squares of a complete unit's weights to their bins. */
static void close_unit_bins(Workspace *workspace)
{
    for (int bin = 0; bin < UNIT_BINS; bin++) {
        double *record = workspace->tables[UNITS_BINS].records + bin * workspace->tables[UNITS_BINS].width;
        double weight = workspace->unit_weight[bin], pooled = workspace->unit_pooled[bin];
        record[UNIT_WEIGHT_SQUARED] += weight * weight;
        record[UNIT_WEIGHT_SQUARED_POOLED] += pooled * pooled;
        workspace->unit_weight[bin] = workspace->unit_pooled[bin] = 0.0;
    }
}

static void fill_units(Workspace *workspace, const Row *row, int has_units)
{
    int64_t bin = equal_width_bin(row->score, UNIT_BINS, row->edge_rule);
    double weight = 1.0 / row->unit_size, pooled = row->n_ratings / row->unit_ratings;
    double *record = record_at(&workspace->tables[UNITS_BINS], bin);
    record[UNIT_LABELLED] += 1.0;
    record[UNIT_WEIGHT] += weight;
    record[UNIT_CONFIDENCE] += weight * row->score;
    record[UNIT_CORRECT_MEAN] += weight * row->score_hits.ratings[MEAN];
    record[UNIT_CORRECT_MAJORITY] += weight * row->score_hits.ratings[MAJORITY];
    record[UNIT_CORRECT_SINGLE] += weight * row->score_hits.ratings[SINGLE];
    record[UNIT_WEIGHT_POOLED] += pooled;
    record[UNIT_CONFIDENCE_POOLED] += pooled * row->score;
    record[UNIT_CORRECT_POOLED] += row->score_hits.ratings[POOLED] / row->unit_ratings;
    if (!has_units) {
        record[UNIT_WEIGHT_SQUARED] += weight * weight;
        record[UNIT_WEIGHT_SQUARED_POOLED] += pooled * pooled;
        return;
    }
    workspace->unit_weight[bin] += weight;
    workspace->unit_pooled[bin] += pooled;
    if (row->ends_unit)
        close_unit_bins(workspace);
}
