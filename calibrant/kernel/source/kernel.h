/*
 * Shared types of the compiled kernel.
 *
 * The numpy accumulators of `calibrant/accumulators` are the specification: every file here has the name of one of them, or
 * of the part of `calibrant/core` that it computes. A fill adds one batch to zeroed scratch tables. A flush then adds the
 * cells that were touched to a pane's blocks, in the blocks' own layout. Floating-point contraction and reassociation are
 * off, so the baseline and the AVX2 variant give the same bits.
 */
#ifndef CALIBRANT_KERNEL_H
#define CALIBRANT_KERNEL_H

#include <stdint.h>

/* Functions of the library; `calibrant/kernel/declarations.py` reads their arguments and the structures that they point to here. */
#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Raised whenever a structure of this file or the order of its blocks changes; the loader rejects any other number. */
#define KERNEL_ABI 19

#define N_REPLICATES 64
#define N_POLICIES 4
#define N_BETAS 21
#define N_CONCENTRATIONS 21

/* When a score counts as on an edge; `calibrant/core/edge_rules.py`. */
enum edge_rule { RULE_EXACT, RULE_FLOAT32, RULE_FLOAT16, RULE_BFLOAT16 };

enum policy { POOLED, MEAN, MAJORITY, SINGLE };

/* Blocks that the kernel fills: accumulator, name, and the numbers of columns of counts and of sums that it writes. */
#define BLOCKS \
    BLOCK(ALL_LABELS_CELLS, all_labels, cells, 2, 13) \
    BLOCK(CLASSES_CELLS, classes, cells, 2, 13) \
    BLOCK(CONCENTRATION_PROFILE, concentration, profile, 2, 6) \
    BLOCK(COUNTS_COUNTS, counts, counts, 7, 1) \
    BLOCK(DISAGREEMENT_CELLS, disagreement, cells, 1, 18) \
    BLOCK(DISAGREEMENT_REPLICATES, disagreement, replicates, 1, 3) \
    BLOCK(LABEL_BINS_BINS, label_bins, bins, 2, 10) \
    BLOCK(LABEL_DISTRIBUTION_SUMS, label_distribution, sums, 3, 9) \
    BLOCK(LABEL_DISTRIBUTION_ENTROPY_GAP, label_distribution, entropy_gap, 1, 1) \
    BLOCK(LABEL_DISTRIBUTION_DISTANCE, label_distribution, distance, 1, 1) \
    BLOCK(LABEL_UNCERTAINTY_SUMS, label_uncertainty, sums, 2, 10) \
    BLOCK(POSITIVE_CELLS, positive, cells, 2, 13) \
    BLOCK(REPLICATES_TABLES, replicates, tables, 1, 8) \
    BLOCK(REPLICATES_SCORES, replicates, scores, 1, 5) \
    BLOCK(REPLICATES_CLASSES, replicates, classes, 1, 8) \
    BLOCK(REPLICATES_SCORE_NULLS, replicates, score_nulls, 1, 2) \
    BLOCK(REPLICATES_UNIT_PRODUCTS, replicates, unit_products, 2, 2) \
    BLOCK(REPLICATES_CLASS_UNIT_PRODUCTS, replicates, class_unit_products, 2, 2) \
    BLOCK(SCORES_SCORES, scores, scores, 3, 9) \
    BLOCK(TEMPERATURE_CURVE, temperature, curve, 2, 8) \
    BLOCK(TEMPERATURE_TABLES, temperature, tables, 1, 8) \
    BLOCK(TEMPERATURE_CURVATURE, temperature, curvature, 1, 2) \
    BLOCK(TEMPERATURE_UNITS, temperature, units, 4, 0) \
    BLOCK(TOP_LABEL_CELLS, top_label, cells, 2, 13) \
    BLOCK(UNCERTAINTY_CELLS, uncertainty, cells, 1, 12) \
    BLOCK(UNITS_BINS, units, bins, 2, 11)

#define BLOCK(name, accumulator, block, n_counts, n_sums) name,
enum block { BLOCKS N_BLOCKS };
#undef BLOCK

/* Equal cells of [0, 1]; `calibrant/core/grid.py`. */
typedef struct {
    int64_t cells, refinement;
    const double *lower; /* infimum of the scores of each position */
} Grid;

/* What the fill knows of a pane's specification. Pointers stay valid as long as the workspace. */
typedef struct {
    int64_t n_classes, is_binary, n_listed;
    const int64_t *slot_of_class;  /* (n_classes,): place among the listed classes, or -1 */
    const int64_t *label_position; /* position on the label grid by position on the class grid, or NULL */
    const int64_t *class_bin;      /* one of 15 bins by position on the class grid, or NULL */
    Grid top_grid, class_grid, label_grid, disagreement_grid, uncertainty_grid;
    double log_n_classes;
} Model;

/* Shape of a block of the pane; size 0 where it is not to be filled. */
typedef struct {
    int64_t n_counts, n_sums, size;
} Shape;

/* One batch. Arrays are (n,) unless stated; NULL where the batch has none. */
typedef struct {
    int64_t n, n_entries, is_logits, has_units, unit_from_row, digest_source;
    const double *scores, *probabilities; /* (n, n_classes) */
    const int64_t *rating_row, *rating_class, *rating_count; /* (n_entries,), by row, then class */
    const double *weights;
    uint64_t *prediction_hash; /* written where `hashes_rows` */
    const uint64_t *unit_hash, *unit_key, *case_hash;
    const int64_t *edge_rules; /* NULL for RULE_FLOAT32 */
    int64_t hashes_rows, needs_digest;
    uint64_t digest[2]; /* written: high and low half of the content digest */
} Batch;

/* Where the cells of one block go: into dense arrays, or into columns of touched cells in increasing order. */
typedef struct {
    int64_t *places; /* written; NULL for dense arrays */
    int64_t *counts;
    double *sums;
    int64_t stride; /* cells from one column to the next */
} Destination;

/* Rates of the same cells in several rows, with their weights and scores. Rows of weights repeat where there are fewer of them. */
typedef struct {
    int64_t n_rows, n, n_weights;
    const double *weights, *rates, *score; /* (n_weights, n); (n_rows, n), in [0, 1]; (n,) */
} Gains;

/* One member of a JSON object, by places in the text; with a column, by places in `values` and `ends`. */
typedef struct {
    int64_t kind, n, width, first, first_end; /* kind 0: skipped; width 0: no lists, or of several lengths in `ends` */
    int64_t name, name_end, value_end; /* the name with its quotes */
} JsonMember;

/* A JSON object, or lines of one each, and where their columns of numbers go. */
typedef struct {
    const char *text; /* ends with a byte 0 after `length` */
    int64_t length;
    const uint64_t (*powers)[2]; /* the leading 128 bits of powers of five, from 5^-342 */
    double *values;              /* doubles or int64, one column after the other */
    int64_t max_values;
    int64_t *ends; /* of lists, relative to their column */
    int64_t max_ends;
    JsonMember *members;
    int64_t max_members, n_members, n_lists; /* the last two are written */
    int64_t n_lines;                         /* ends of lines in the text */
    char *rest;                              /* of lines: the other members of each, as objects with a comma behind each */
    int64_t n_rest;                          /* written; at most `length`, and two for each line */
} JsonText;

/* Rows with one label each, where the caller has them, and the tables that they are added to. */
typedef struct {
    int64_t n, n_classes, row_stride, class_stride; /* strides in bytes */
    int64_t is_double, is_flat, edge_rule, n_bins;  /* flat: scores of class 1 of two */
    const void *scores;
    const int64_t *labels;
    Grid grid;
    const int64_t *bin_of;                /* bin of a replicate's table by position on the grid */
    double *top_cells, *positive_cells;   /* (n_positions, 4); the second NULL unless there are two classes */
    double *tables, *sums;                /* (N_REPLICATES, n_bins, 4), (N_REPLICATES, 8) */
    Grid class_grid;
    int64_t class_step, n_class_bins;     /* positions from the cells of one class to those of the next; 0: one table of all classes */
    const int64_t *class_bin_of;          /* bin of a replicate's table of a class by position on the class grid */
    double *class_cells, *class_tables;   /* (n_classes or 1, n_positions, 4), (N_REPLICATES, n_classes, n_class_bins, 4), or NULL */
} SingleLabels;

typedef struct Workspace Workspace;

#endif
