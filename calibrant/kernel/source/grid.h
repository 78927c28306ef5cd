/* Positions of scores on a grid, and equal-width bins; `calibrant/core/grid.py`. */
#ifndef CALIBRANT_GRID_H
#define CALIBRANT_GRID_H

#include <math.h>

#include "hashing.h"
#include "kernel.h"

#define NEAR_EDGE 1e-9
#define DERIVED_EDGE 1e-10
#define FLOAT32_ROUNDING 0x1p-23

static inline int64_t n_positions(const Grid *grid)
{
    return 2 * grid->cells - 1 + 2 * grid->refinement;
}

static inline int is_near_whole(double scaled)
{
    return fabs(rint(scaled) - scaled) < NEAR_EDGE;
}

/* Part of an end interval by powers of two, 1 to the refinement, of a distance from the end in cells. */
static inline int64_t geometric_part(const Grid *grid, double cells_from_end)
{
    /* The exponent of `frexp`; subnormals and zero are in the last part whatever theirs is. */
    int64_t exponent = (int64_t)(bits_of(cells_from_end) >> 52) - 1022;
    int64_t part = grid->refinement + exponent;
    return part < 1 ? 1 : part > grid->refinement ? grid->refinement : part;
}

static inline int64_t locate_first(const Grid *grid, double score)
{
    if (score == 0.0)
        return 0;
    int64_t part = geometric_part(grid, score * (double)grid->cells);
    return part - (grid->lower[part] > score); /* the product is rounded */
}

static inline int64_t locate_last(const Grid *grid, double score)
{
    const double cells = (double)grid->cells;
    int64_t top = n_positions(grid) - 1;
    if (score == (cells - 1.0) / cells)
        return top - grid->refinement - 1;
    return score == 1.0 ? top : top - geometric_part(grid, (1.0 - score) * cells);
}

/* Whole cells below a score that rounding may have moved across an edge. */
static inline double exact_floor(double score, double cells)
{
    double k = floor(score * cells);
    k -= k / cells > score;
    return k + ((k + 1.0) / cells <= score);
}

/* A score in (0, 1] rounded to the type of a rule: to float16, or by way of float32 to bfloat16; ties to even. */
static inline double rounded_to(double value, enum edge_rule rule)
{
    const int dropped = rule == RULE_FLOAT16 ? 42 : 45;
    const double wide = rule == RULE_FLOAT16 ? value : (double)(float)value;
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    bits += (1ull << (dropped - 1)) - 1 + (bits >> dropped & 1);
    bits &= ~0ull << dropped;
    double found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

static inline int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The edge that a score of 16 bits is rounded from, or the score; of several edges that of the fewest bins. */
static inline double with_typed_edges(double score, double cells, enum edge_rule rule)
{
    const double reach = score * (rule == RULE_FLOAT16 ? 0x1p-11 : 0x1p-8);
    int64_t last = (int64_t)floor((score + reach) * cells), most = 0;
    double found = score;
    for (int64_t k = (int64_t)ceil((score - reach) * cells); k <= last; k++) {
        int64_t common = common_divisor(k, (int64_t)cells);
        if (k > 0 && common > most && rounded_to((double)k / cells, rule) == score) {
            most = common;
            found = (double)k / cells;
        }
    }
    return found;
}

/* The edge that a score counts as on, or the score; `calibrant/core/edge_rules.py`. */
static inline double with_edges(double score, double cells, enum edge_rule rule)
{
    const double scaled = score * cells, whole = rint(scaled);
    if (rule == RULE_EXACT)
        return score;
    if (fabs(whole - scaled) <= whole * FLOAT32_ROUNDING && (double)(float)(whole / cells) == score)
        return whole / cells;
    return rule == RULE_FLOAT32 ? score : with_typed_edges(score, cells, rule);
}

/* Position of a score in [0, 1]. */
static inline int64_t locate(const Grid *grid, double given, enum edge_rule rule)
{
    const double cells = (double)grid->cells, score = with_edges(given, cells, rule), scaled = score * cells;
    int is_near = scaled > 0.5 && is_near_whole(scaled);
    if (scaled > cells - 1.5 && score >= (cells - 1.0) / cells)
        return locate_last(grid, score);
    if (is_near ? score < 1.0 / cells : scaled < 1.0)
        return locate_first(grid, score);
    if (!is_near)
        return 2 * (int64_t)scaled + grid->refinement;
    double k = exact_floor(score, cells);
    return 2 * (int64_t)k + grid->refinement - (k / cells == score);
}

/* Bin of a score in [0, 1]; a score on an edge is in the bin below. */
static inline int64_t equal_width_bin(double given, int64_t n_bins, enum edge_rule rule)
{
    const double bins = (double)n_bins, score = with_edges(given, bins, rule), scaled = score * bins;
    double k = floor(scaled);
    if (is_near_whole(scaled)) {
        k = exact_floor(score, bins);
        k -= k / bins == score;
    }
    int64_t bin = (int64_t)k;
    return bin < 0 ? 0 : bin >= n_bins ? n_bins - 1 : bin;
}

/* Bin of a score with rounding errors of its own; within `DERIVED_EDGE` of an edge it is on the edge. */
static inline int64_t derived_bin(double score, int64_t n_bins)
{
    int64_t bin = (int64_t)ceil(score * (double)n_bins - DERIVED_EDGE) - 1;
    return bin < 0 ? 0 : bin >= n_bins ? n_bins - 1 : bin;
}

/* The edge that a score with rounding errors of its own is on, or the score. */
static inline double on_edge(double score, int64_t n_cells)
{
    const double cells = (double)n_cells, scaled = score * cells, whole = rint(scaled);
    return fabs(whole - scaled) < DERIVED_EDGE ? whole / cells : score;
}

#endif
