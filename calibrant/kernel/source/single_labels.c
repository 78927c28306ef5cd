/*
 * Sums of rows that have one label each and no name: one pass over the caller's array, without a copy.
 *
 * The four label policies are equal, weights and units are one. So a cell needs four sums instead of fifteen, and a score of a
 * replicate three instead of nine; `calibrant/kernel/single_labels.py` makes the blocks of a pane of them. Eight rows are taken at
 * once, each in a lane. A row with a value that is not simply valid ends the pass: the general reader says what is wrong, or adjusts it.
 */
#include <math.h>

#include "exponential.h"
#include "grid.h"
#include "hashing.h"
#include "kernel.h"

#define GROUP 8
#define PARTS (GROUP / LANES)
#define SUM_EXACT 1e-9
#define SUM_LENIENT 1e-3
#define PAIRWISE_BLOCK 128

enum { SINGLE_N, SINGLE_CONFIDENCE, SINGLE_CORRECT, SINGLE_NULL_VARIANCE, N_SINGLE_CELL };
enum {
    SUM_N,
    SUM_FINITE,
    SUM_BRIER,
    SUM_NLL,
    SUM_CORRECT,
    SUM_BRIER_NULL,
    SUM_BRIER_NULL_VARIANCE,
    SUM_ACCURACY_NULL,
    N_SINGLE_SUMS
};

/* Values of one class, of eight rows. */
typedef struct {
    Lanes part[PARTS];
} Group;

/* Statistics of eight rows. */
typedef struct {
    double top[GROUP], squares[GROUP], cubes[GROUP];
    int64_t top_class[GROUP];
    uint64_t hash[GROUP];
} RowGroup;

static inline Group add_groups(Group a, Group b)
{
    for (int h = 0; h < PARTS; h++)
        a.part[h] += b.part[h];
    return a;
}

/* Sums of rows in the order in which numpy adds the elements of a contiguous row. */
static Group sum_pairwise(const Group *values, int64_t n)
{
    if (n > PAIRWISE_BLOCK) {
        int64_t half = n / 2;
        half -= half % 8;
        return add_groups(sum_pairwise(values, half), sum_pairwise(values + half, n - half));
    }
    Group total = {{{0}}};
    int64_t k = 0;
    if (n >= 8) {
        Group part[8];
        memcpy(part, values, sizeof part);
        for (k = 8; k < n - n % 8; k += 8)
            for (int i = 0; i < 8; i++)
                part[i] = add_groups(part[i], values[k + i]);
        Group first = add_groups(add_groups(part[0], part[1]), add_groups(part[2], part[3]));
        total = add_groups(first, add_groups(add_groups(part[4], part[5]), add_groups(part[6], part[7])));
    }
    for (; k < n; k++)
        total = add_groups(total, values[k]);
    return total;
}

#define LOAD_ROWS(NAME, TYPE)                                                                                    \
    static void NAME(const SingleLabels *rows, int64_t first, int64_t n_live, double *values)                     \
    {                                                                                                            \
        const char *start[GROUP];                                                                                \
        for (int i = 0; i < GROUP; i++)                                                                          \
            start[i] = (const char *)rows->scores + (first + (i < n_live ? i : 0)) * rows->row_stride;           \
        if (rows->is_flat) {                                                                                     \
            for (int i = 0; i < GROUP; i++) {                                                                    \
                values[GROUP + i] = (double)*(const TYPE *)start[i];                                             \
                values[i] = 1.0 - values[GROUP + i];                                                             \
            }                                                                                                    \
            return;                                                                                              \
        }                                                                                                        \
        if (rows->class_stride == sizeof(TYPE)) {                                                                \
            for (int64_t k = 0; k < rows->n_classes; k++)                                                        \
                for (int i = 0; i < GROUP; i++)                                                                  \
                    values[k * GROUP + i] = (double)((const TYPE *)start[i])[k];                                    \
            return;                                                                                              \
        }                                                                                                        \
        for (int64_t k = 0; k < rows->n_classes; k++)                                                            \
            for (int i = 0; i < GROUP; i++)                                                                      \
                values[k * GROUP + i] = (double)*(const TYPE *)(start[i] + k * rows->class_stride);                \
    }
LOAD_ROWS(load_float64, double)
LOAD_ROWS(load_float32, float)

/* Whether all values are probabilities, and their sum is 1 but for rounding. */
static int are_valid(const Group *values, int64_t n_classes, const Group *total)
{
    LaneMask is_outside = {0};
    for (int64_t k = 0; k < n_classes; k++)
        for (int h = 0; h < PARTS; h++)
            is_outside |= (values[k].part[h] < splat(0.0)) | (values[k].part[h] > splat(1.0));
    for (int h = 0; h < PARTS; h++)
        is_outside |= ~((total->part[h] >= splat(1.0 - SUM_LENIENT)) & (total->part[h] <= splat(1.0 + SUM_LENIENT)));
    return !any_lane(is_outside);
}

/* What each row is divided by: its sum, where this misses 1 by more than 1e-9. */
static Group divisors(const Group *total)
{
    Group found;
    for (int h = 0; h < PARTS; h++) {
        Lanes off = total->part[h] - splat(1.0);
        LaneMask is_off = (off > splat(SUM_EXACT)) | (off < splat(-SUM_EXACT));
        found.part[h] = select_lanes(is_off, total->part[h], splat(1.0));
    }
    return found;
}

static inline LaneBits mix_lanes(LaneBits x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* Divide rows, and add up what their scores have: largest, powers and hash. */
static void take_statistics(Group *values, int64_t n_classes, const Group *total, RowGroup *group)
{
    const Group divisor = divisors(total);
    Lanes top[PARTS] = {{0}}, squares[PARTS] = {{0}}, cubes[PARTS] = {{0}};
    LaneMask top_class[PARTS] = {{0}};
    LaneBits hash[PARTS] = {{0}};
    for (int64_t k = 0; k < n_classes; k++)
        for (int h = 0; h < PARTS; h++) {
            Lanes p = values[k].part[h] / divisor.part[h], square = p * p;
            LaneMask is_larger = p > top[h];
            values[k].part[h] = p;
            top[h] = select_lanes(is_larger, p, top[h]);
            top_class[h] = (is_larger & (LaneMask){k, k, k, k}) | (~is_larger & top_class[h]);
            squares[h] += square;
            cubes[h] += square * p;
            hash[h] = mix_lanes(hash[h] ^ (LaneBits)(p + splat(0.0)));
        }
    memcpy(group->top, top, sizeof top);
    memcpy(group->squares, squares, sizeof squares);
    memcpy(group->cubes, cubes, sizeof cubes);
    memcpy(group->top_class, top_class, sizeof top_class);
    memcpy(group->hash, hash, sizeof hash);
}

static void add_to_cell(double *record, double score, double correct)
{
    record[SINGLE_N] += 1.0;
    record[SINGLE_CONFIDENCE] += score;
    record[SINGLE_CORRECT] += correct;
    record[SINGLE_NULL_VARIANCE] += score * (1.0 - score);
}

/* Logarithm of the probability of each row's label; 0 where it is impossible. */
static void log_of_labels(const double own[GROUP], double logarithm[GROUP])
{
    for (int i = 0; i < GROUP; i += LANES) {
        Lanes p = {own[i], own[i + 1], own[i + 2], own[i + 3]};
        LaneMask is_possible = p > splat(0.0);
        Lanes found = select_lanes(is_possible, log_positive(select_lanes(is_possible, p, splat(1.0))), splat(0.0));
        memcpy(logarithm + i, &found, sizeof found);
    }
}

static void add_scores(double *sums, const RowGroup *group, int i, double own, double logarithm, double correct)
{
    double squares = group->squares[i], variance = 4.0 * (group->cubes[i] - squares * squares);
    sums[SUM_N] += 1.0;
    sums[SUM_FINITE] += own > 0.0;
    sums[SUM_BRIER] += squares + 1.0 - 2.0 * own;
    sums[SUM_NLL] -= logarithm;
    sums[SUM_CORRECT] += correct;
    sums[SUM_BRIER_NULL] += 1.0 - squares;
    sums[SUM_BRIER_NULL_VARIANCE] += variance > 0.0 ? variance : 0.0;
    sums[SUM_ACCURACY_NULL] += group->top[i];
}

/* Where one class of a row is counted; NULL in a table that is not asked for. */
typedef struct {
    double *cell, *bin;
} ClassPlace;

static ClassPlace class_place_of(const SingleLabels *rows, int64_t k, int64_t replicate, double p)
{
    int64_t position = locate(&rows->class_grid, p, (enum edge_rule)rows->edge_rule), table = replicate * rows->n_classes + k;
    ClassPlace place = {NULL, NULL};
    if (rows->class_cells)
        place.cell = rows->class_cells + N_SINGLE_CELL * (k * rows->class_step + position);
    if (rows->class_tables)
        place.bin = rows->class_tables + N_SINGLE_CELL * (table * rows->n_class_bins + rows->class_bin_of[position]);
    __builtin_prefetch(place.cell, 1);
    __builtin_prefetch(place.bin, 1);
    return place;
}

/* Add every class of some rows. The tables exceed the nearest caches: all places are found before the first is added to. */
static void add_classes(const SingleLabels *rows, const int64_t *labels, int64_t n_live, Group *values, const int64_t *replicates)
{
    ClassPlace *places = (ClassPlace *)(values + rows->n_classes);
    for (int64_t i = 0; i < rows->n_classes * GROUP; i++)
        if (i % GROUP < n_live)
            places[i] = class_place_of(rows, i / GROUP, replicates[i % GROUP], ((const double *)values)[i]);
    for (int64_t i = 0; i < rows->n_classes * GROUP; i++) {
        if (i % GROUP >= n_live)
            continue;
        const double p = ((const double *)values)[i], correct = i / GROUP == labels[i % GROUP];
        if (places[i].cell)
            add_to_cell(places[i].cell, p, correct);
        if (places[i].bin)
            add_to_cell(places[i].bin, p, correct);
    }
}

static void add_group(const SingleLabels *rows, int64_t first, int64_t n_live, Group *values, const RowGroup *group)
{
    const enum edge_rule rule = (enum edge_rule)rows->edge_rule;
    double own[GROUP], logarithm[GROUP];
    int64_t replicates[GROUP];
    for (int i = 0; i < GROUP; i++)
        own[i] = ((const double *)values)[rows->labels[first + (i < n_live ? i : 0)] * GROUP + i];
    log_of_labels(own, logarithm);
    for (int i = 0; i < n_live; i++) {
        int64_t label = rows->labels[first + i], replicate = replicates[i] = (int64_t)(mix(group->hash[i] ^ 0xA5A5A5A5u) >> 58);
        double top = group->top[i], correct = group->top_class[i] == label, score = top, hit = correct;
        int64_t position = locate(&rows->grid, top, rule);
        add_to_cell(rows->top_cells + N_SINGLE_CELL * position, top, correct);
        if (rows->positive_cells) {
            double own_score = ((const double *)values)[GROUP + i], is_positive = label == 1;
            int64_t own_position = locate(&rows->grid, own_score, rule);
            add_to_cell(rows->positive_cells + N_SINGLE_CELL * own_position, own_score, is_positive);
            /* The score of replicates; `take_score` in `rows.c`. */
            if (rows->is_flat) {
                score = own_score;
                hit = is_positive;
                position = own_position;
            }
        }
        add_to_cell(rows->tables + N_SINGLE_CELL * (replicate * rows->n_bins + rows->bin_of[position]), score, hit);
        add_scores(rows->sums + N_SINGLE_SUMS * replicate, group, i, own[i], logarithm[i], correct);
    }
    if (rows->class_cells || rows->class_tables)
        add_classes(rows, rows->labels + first, n_live, values, replicates);
}

static int labels_are_valid(const SingleLabels *rows, int64_t first, int64_t n_live)
{
    int valid = 1;
    for (int i = 0; i < n_live; i++)
        valid &= rows->labels[first + i] >= 0 && rows->labels[first + i] < rows->n_classes;
    return valid;
}

/* Add all rows, with `values` and a `ClassPlace` of each behind them as scratch; returns whether all of them were valid. */
static int add_single_labels(const SingleLabels *rows, Group *values)
{
    for (int64_t first = 0; first < rows->n; first += GROUP) {
        int64_t n_live = rows->n - first < GROUP ? rows->n - first : GROUP;
        RowGroup group;
        Group total;
        (rows->is_double ? load_float64 : load_float32)(rows, first, n_live, (double *)values);
        total = sum_pairwise(values, rows->n_classes);
        if (!are_valid(values, rows->n_classes, &total) || !labels_are_valid(rows, first, n_live))
            return 0;
        take_statistics(values, rows->n_classes, &total, &group);
        add_group(rows, first, n_live, values, &group);
    }
    return 1;
}
