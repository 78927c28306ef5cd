/* Scratch memory of fills for one specification; one fill at a time uses it. */
#ifndef CALIBRANT_WORKSPACE_H
#define CALIBRANT_WORKSPACE_H

#include "kernel.h"
#include "lanes.h"
#include "rows.h"
#include "table.h"

#define STEPS_PER_OCTAVE 2
#define N_POWERS (N_BETAS + STEPS_PER_OCTAVE) /* two steps past the grid give the sums of squares */
#define CONCENTRATION_LANES ((N_CONCENTRATIONS + LANES - 1) / LANES)
#define UNIT_BINS 60
#define SCORE_BINS 60
#define CLASS_BINS 15

/* Columns of the temperature's blocks `curve` and `curvature`; `calibrant/accumulators/temperature.py`. */
enum { WEIGHT, NLL, NLL_D1, NLL_D2, NLL_D1_SQUARED, WEIGHT_ALL, BRIER, BRIER_D1, N_CURVE_SUMS };
enum { BRIER_D2 = N_CURVE_SUMS, BRIER_D1_SQUARED, N_TEMPERATURE_SUMS };

/* Gradients of the open unit, and the sums of their squares over complete ones. */
typedef struct {
    double open[N_POLICIES][N_BETAS], closed[N_POLICIES][N_BETAS];
} SquaresByUnit;

/* What the open unit has among its rows of positive weight. */
typedef struct {
    int has_weight, has_correct[N_POLICIES], has_incorrect[N_POLICIES];
} UnitRatings;

/* Weights of the open unit's rows in the bins of one table; `replicates.py`. */
typedef struct {
    double n_rows, pooled, plain;
} UnitBin;

/* Sums of the temperature's curve over the fill, lane by lane. */
typedef struct {
    double predictions, n_impossible[N_POLICIES];
    Lanes sums[N_TEMPERATURE_SUMS][N_POLICIES][N_BETAS];
    SquaresByUnit nll_squares, brier_squares;
} Curve;

/* Sums of the concentration's profile over the fill. */
typedef struct {
    double predictions, n_impossible, weight, limit;
    Lanes nll[CONCENTRATION_LANES], d1[CONCENTRATION_LANES], d2[CONCENTRATION_LANES];
    Lanes unit_gradient[CONCENTRATION_LANES], d1_squared[CONCENTRATION_LANES];
    /* Of the number of ratings of the row before, which most rows share. */
    double total_ratings;
    Lanes total_log[CONCENTRATION_LANES], total_d1[CONCENTRATION_LANES], total_d2[CONCENTRATION_LANES];
} Profile;

/* A class with ratings, among those of one row sorted by their number. */
typedef struct {
    int64_t ratings, class_index;
    double score, largest_before; /* largest score of the classes sorted before it, those without ratings included */
} RatedClass;

/* A row's place in the order of units. */
typedef struct {
    uint64_t unit_key;
    int64_t row;
} UnitRow;

/* Points of the two profiles: betas, concentrations and the logarithms of these, the last repeated in the lanes beyond. */
typedef struct {
    double beta[N_BETAS];
    Lanes concentration[CONCENTRATION_LANES], log_concentration[CONCENTRATION_LANES];
} Points;

struct Workspace {
    Model model;
    Points points;
    Table tables[N_BLOCKS];
    Tile tile;
    Curve curve;
    Profile profile;
    double unit_weight[UNIT_BINS], unit_pooled[UNIT_BINS]; /* of the open unit, by bin of the score */
    UnitRatings unit_ratings;
    UnitBin *unit_bins; /* SCORE_BINS of the score, then CLASS_BINS of every class; zero where no row of the open unit is */
    Lanes *powers;                                        /* (2, n_classes): exp(beta z) at the first two betas */
    RatedClass *rated;                                    /* (n_classes,) */
    double *share;                                        /* (n_classes,): of the open row's ratings; zero between rows */
    int32_t *position;                                    /* (LANES, n_classes): of the tile's rows on the class grid */
    uint64_t *word_keys[2];                               /* of the digest: (head words and scores,), then (n_classes,) of ratings */
    /* By row of the batch; they grow with the largest batch. */
    int64_t capacity;
    uint64_t *score_hash; /* (n,) */
    int64_t *first_entry; /* (n + 1,) */
    UnitRow *order;
    uint64_t *row_digest[2];
};

/* Positions on the class grid of one of the tile's rows. */
static inline int32_t *positions_of(const Workspace *workspace, int lane)
{
    return workspace->position + lane * workspace->model.n_classes;
}

#endif
