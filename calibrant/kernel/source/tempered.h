/*
 * Losses of rows under softmax(beta z) at any beta: the arrays that they are computed from and those that they are written to.
 * `calibrant/kernel/tempered.py` has the same structures.
 */
#ifndef CALIBRANT_TEMPERED_H
#define CALIBRANT_TEMPERED_H

#include <stdint.h>

/* Sums over rows at one beta: weighted losses, two derivatives in beta, and squares of the rows' slopes. */
enum { OF_NLL, NLL_SLOPE, NLL_CURVATURE, NLL_SQUARES, OF_BRIER, BRIER_SLOPE, BRIER_CURVATURE, BRIER_SQUARES, N_TEMPERED };
/* What a pass computes: the NLL with derivatives; the Brier score; its derivatives. */
enum { WITHOUT_BRIER, WITH_BRIER, WITH_BRIER_DERIVATIVES };
/* Sums over rows at no beta: weight of ratings of positive probability, of all, and the weighted logits of the former. */
enum { POSSIBLE_WEIGHT, FULL_WEIGHT, LOGIT_SUM, N_ROW_SUMS };

/* Rows of scores and their ratings, by row. */
typedef struct {
    int64_t n, n_classes, n_entries;
    int64_t is_single, is_logits, is_binary; /* scores are float32; logits; the score of a row is that of class 1 */
    const void *scores;
    int64_t row_stride, class_stride;           /* in values */
    const int64_t *entry_row, *entry_class;     /* (n_entries,); entry_row is NULL where each row has one */
    const double *entry_weight;                 /* (n_entries,), or NULL: all 1 */
    const uint8_t *edge_rules;                  /* (n,), of `enum edge_rule`, or NULL: `RULE_FLOAT32` */
    int64_t *tile_slots;                        /* (n_tiles,), written first: most ratings of a row of each tile of 8 rows */
    int64_t n_slots, most_slots;                /* written with them: their sum and maximum */
    float *tiles;                               /* of each tile (n_classes + 1 + 2 slots, 8); NULL: computed in double at every pass */
    double *sent;                               /* (n,), written with the tiles, or by a pass without: the score at beta 1 */
    uint8_t *is_incorrect;                      /* (n,), written likewise: whether a rating with weight is not of the most probable class */
    double row_sums[N_ROW_SUMS];                /* written likewise */
    int64_t n_impossible;                       /* written likewise: entries of a class that no beta makes possible */
} TemperedRows;

/* What is computed at some betas. */
typedef struct {
    int64_t n_betas, order, is_exact;  /* in double, although the rows have tiles */
    int64_t doubles_every; /* 2 where betas[i + 2] = 2 betas[i], else 0 */
    const double *betas;
    double *sums;          /* written: (n_betas, N_TEMPERED) */
    int64_t n_bins;        /* of tables; 0 without */
    double *tables;        /* written: (n_betas, n_bins, 3) of weight, score and correct */
    double *row_values;    /* written: (3, n) of NLL, its slope and Brier's at the last beta, or NULL */
} TemperedPass;

/* Tables at many betas between nodes, at which the rows' normalisers are computed. */
typedef struct {
    int64_t n_nodes, n_betas, n_bins;
    const double *nodes, *betas;
    const int64_t *left;   /* (n_betas,): the node before each beta */
    const double *basis;   /* (n_betas, 6): factors of value and two derivatives in log beta at the nodes before and after */
    double *tables;        /* written: (n_betas, n_bins, 3) */
} TemperedTables;

#endif
