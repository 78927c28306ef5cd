/*
 * Statistics of labelled rows that several accumulators read; `calibrant/core/batch_sums.py`.
 *
 * Rows are taken four at a time: what needs exponentials or sums over classes is computed at once, in lanes; what depends
 * on ratings is computed row by row.
 */
#ifndef CALIBRANT_ROWS_H
#define CALIBRANT_ROWS_H

#include "kernel.h"
#include "lanes.h"

/* Ratings of one class of a row under each policy, before the row's own weight; `Hits` in numpy. */
typedef struct {
    double ratings[N_POLICIES];
} Hits;

typedef struct {
    int64_t index; /* in the batch; -1 for a lane without a row */
    int64_t n_rated;
    const int64_t *rated, *ratings; /* (n_rated,): classes with a rating, and their numbers of ratings */
    double weight, n_ratings;
    double unit_size, unit_ratings; /* of the row's unit in the batch: labelled rows, and their ratings */
    int ends_unit, is_tied;
    enum edge_rule edge_rule;
    int64_t replicate, majority, single, top_class;
    const double *probabilities; /* (n_classes,) */
    double confidence, score;
    double squares, cubes, entropy;
    double rated_probability; /* sum over ratings of the probability of their class */
    double loss;              /* sum over ratings of positive probability of minus its logarithm */
    double n_impossible;      /* ratings of a class at probability 0 */
    Hits top_hits, score_hits;
} Row;

typedef struct {
    int64_t n;
    Row rows[LANES];
    /* (n_classes,) each */
    Lanes *probability;
    Lanes *logit;             /* relative logits, 0 where the probability is 0 */
    LaneMask *is_possible;  /* probability is positive */
    Lanes *log_probability; /* 0 where the probability is 0 */
} Tile;

/* The rule of numbers that are computed from a row's scores: these have no 16 bits. */
static inline enum edge_rule derived_rule(const Row *row)
{
    return row->edge_rule < RULE_FLOAT32 ? row->edge_rule : RULE_FLOAT32;
}

/* Ratings of a class under each policy. */
static inline Hits hits_of(const Row *row, int64_t class_index, double ratings)
{
    return (Hits){{ratings, ratings / row->n_ratings, row->majority == class_index, row->single == class_index}};
}

#endif
