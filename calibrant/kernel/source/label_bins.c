/* What the debiased calibration loss needs, by class and 60 bins; `calibrant/accumulators/label_bins.py`. */
#include "grid.h"
#include "workspace.h"

enum {
    LABEL_PREDICTIONS,
    LABEL_ONE_VOTE,
    LABEL_RATINGS_SQUARED,
    LABEL_CORRECT_RATINGS_SQUARED,
    LABEL_CORRECT_SQUARED_RATINGS_SQUARED,
    LABEL_RESIDUAL,
    LABEL_RESIDUAL_SQUARED,
    LABEL_ONE_WEIGHT,
    LABEL_ONE_CONFIDENCE,
    LABEL_ONE_CORRECT,
    LABEL_ONE_WEIGHT_SQUARED,
    LABEL_ONE_CORRECT_WEIGHT_SQUARED,
    N_LABEL_COLUMNS
};

static int64_t label_position(const Model *model, const Row *row, int64_t k, int64_t class_position)
{
    if (model->label_position)
        return model->label_position[class_position];
    return locate(&model->label_grid, row->probabilities[k], row->edge_rule);
}

static void fill_label_bins(Workspace *workspace, const Row *row, const int32_t *position)
{
    Table *table = &workspace->tables[LABEL_BINS_BINS];
    const Model *model = &workspace->model;
    const int64_t size = n_positions(&model->label_grid);
    const int has_one = row->n_ratings == 1.0;
    const double w = row->weight, square = w * w, ratings_squared = square * (row->n_ratings * row->n_ratings);
    const double weighted_ratings = w * row->n_ratings;
    for (int64_t k = 0; k < model->n_classes; k++) {
        double p = row->probabilities[k];
        double *record = record_at(table, k * size + label_position(model, row, k, position[k]));
        record[LABEL_PREDICTIONS] += 1.0;
        record[LABEL_RATINGS_SQUARED] += weighted_ratings * weighted_ratings;
        record[LABEL_RESIDUAL] -= square * p;
        record[LABEL_RESIDUAL_SQUARED] += square * p * p;
        if (has_one) {
            record[LABEL_ONE_VOTE] += 1.0;
            record[LABEL_ONE_WEIGHT] += w;
            record[LABEL_ONE_CONFIDENCE] += w * p;
            record[LABEL_ONE_WEIGHT_SQUARED] += square;
        }
    }
    for (int64_t i = 0; i < row->n_rated; i++) {
        int64_t k = row->rated[i];
        double p = row->probabilities[k], ratings = (double)row->ratings[i], share = ratings / row->n_ratings;
        double *record = record_at(table, k * size + label_position(model, row, k, position[k]));
        record[LABEL_CORRECT_RATINGS_SQUARED] += ratings_squared * share;
        record[LABEL_CORRECT_SQUARED_RATINGS_SQUARED] += square * (ratings * ratings);
        record[LABEL_RESIDUAL] += square * share;
        record[LABEL_RESIDUAL_SQUARED] += square * share * (share - 2.0 * p);
        if (has_one) {
            record[LABEL_ONE_CORRECT] += w;
            record[LABEL_ONE_CORRECT_WEIGHT_SQUARED] += square;
        }
    }
}
