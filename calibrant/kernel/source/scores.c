/* Sums of the proper scores by policy; `calibrant/accumulators/scores.py` and the block `scores` of `replicates.py`. */
#include "workspace.h"

enum {
    SCORE_SAMPLES,
    SCORE_PREDICTIONS,
    SCORE_ZERO_PROBABILITY,
    SCORE_SUMS, /* the five of `ScoreSumsOfRow` */
    SCORE_BRIER_NULL = SCORE_SUMS + 5,
    SCORE_BRIER_NULL_VARIANCE,
    SCORE_ACCURACY_NULL,
    SCORE_ACCURACY_NULL_VARIANCE,
    N_SCORE_COLUMNS
};

/* Samples and losses of a row under one policy, the row's weight included; `row_scores` in numpy. */
typedef struct {
    double samples, n_impossible;
    double sums[5]; /* weight, weight of the finite, Brier, NLL of the finite, correct */
} RowScores;

/* Scores against one class, for `majority` and `single`. */
static RowScores scores_of_class(const Row *row, const Tile *tile, int lane, int64_t k)
{
    int is_possible = tile->is_possible[k][lane] != 0;
    double brier = row->squares + 1.0 - 2.0 * row->probabilities[k], w = row->weight;
    return (RowScores){
        1.0,
        !is_possible,
        {w, w * is_possible, w * brier, -w * tile->log_probability[k][lane], w * (k == row->top_class)},
    };
}

static RowScores scores_of_ratings(const Row *row)
{
    double n = row->n_ratings, w = row->weight;
    double brier = n * (row->squares + 1.0) - 2.0 * row->rated_probability;
    return (RowScores){
        n,
        row->n_impossible,
        {n * w, (n - row->n_impossible) * w, brier * w, row->loss * w, row->top_hits.ratings[POOLED] * w},
    };
}

static RowScores row_scores(const Row *row, const Tile *tile, int lane, int policy)
{
    if (policy == MAJORITY || policy == SINGLE)
        return scores_of_class(row, tile, lane, policy == MAJORITY ? row->majority : row->single);
    RowScores scores = scores_of_ratings(row);
    if (policy == MEAN) {
        scores.samples = 1.0;
        for (int i = 0; i < 5; i++)
            scores.sums[i] /= row->n_ratings;
    }
    return scores;
}

/* Mean and variance of the Brier and accuracy sums if labels were drawn from the prediction. */
static void add_null_sums(double *record, const Row *row, double weight)
{
    double dependent = row->unit_size * (weight * weight), top = row->confidence;
    double variance = 4.0 * (row->cubes - row->squares * row->squares);
    record[SCORE_BRIER_NULL] += weight * (1.0 - row->squares);
    record[SCORE_BRIER_NULL_VARIANCE] += dependent * (variance > 0.0 ? variance : 0.0);
    record[SCORE_ACCURACY_NULL] += weight * top;
    record[SCORE_ACCURACY_NULL_VARIANCE] += dependent * (top * (1.0 - top));
}

static void fill_scores(Workspace *workspace, const Row *row, int lane)
{
    Table *scores = &workspace->tables[SCORES_SCORES], *replicates = &workspace->tables[REPLICATES_SCORES];
    for (int policy = 0; policy < N_POLICIES; policy++) {
        RowScores own = row_scores(row, &workspace->tile, lane, policy);
        if (is_wanted(scores)) {
            double *record = record_at(scores, policy);
            record[SCORE_SAMPLES] += own.samples;
            record[SCORE_PREDICTIONS] += 1.0;
            record[SCORE_ZERO_PROBABILITY] += own.n_impossible;
            for (int i = 0; i < 5; i++)
                record[SCORE_SUMS + i] += own.sums[i];
            add_null_sums(record, row, policy == POOLED ? row->weight * row->n_ratings : row->weight);
        }
        if (is_wanted(replicates)) {
            double *record = record_at(replicates, row->replicate * N_POLICIES + policy);
            record[0] += 1.0;
            for (int i = 0; i < 5; i++)
                record[1 + i] += own.sums[i];
            double weight = policy == POOLED ? row->weight * row->n_ratings : row->weight;
            double *nulls = record_at(&workspace->tables[REPLICATES_SCORE_NULLS], row->replicate * N_POLICIES + policy);
            nulls[0] += 1.0;
            nulls[1] += weight * (1.0 - row->squares);
            nulls[2] += weight * row->confidence;
        }
    }
}
