/* Predictions against their label distributions; `label_distribution.py`, with `calibrant/raters/label_comparison.py`. */
#include <stdlib.h>

#include "exponential.h"
#include "grid.h"
#include "workspace.h"

#define HISTOGRAM_BINS 200
#define FEW_CLASSES 16 /* up to so many are sorted by insertion */

enum {
    DISTRIBUTION_PREDICTIONS,
    DISTRIBUTION_N_UNTIED,
    DISTRIBUTION_N_TWO_RATINGS,
    DISTRIBUTION_WEIGHT,
    DISTRIBUTION_ENTROPY_GAP,
    DISTRIBUTION_ENTROPY_GAP_ABSOLUTE,
    DISTRIBUTION_DISTANCE,
    DISTRIBUTION_SAME_ORDER,
    DISTRIBUTION_SAME_STRICT_ORDER,
    DISTRIBUTION_UNTIED,
    DISTRIBUTION_WEIGHT_OF_TWO,
    DISTRIBUTION_DISAGREEMENT,
    N_DISTRIBUTION_COLUMNS
};

typedef struct {
    int same_order, same_strict_order, is_untied;
} Orders;


static int has_fewer(const RatedClass *a, const RatedClass *b)
{
    return a->ratings != b->ratings ? a->ratings < b->ratings : a->class_index < b->class_index;
}

static int by_ratings(const void *left, const void *right)
{
    return has_fewer(left, right) ? -1 : 1;
}

/* Sort by number of ratings, then class. */
static void sort_rated(RatedClass *rated, int64_t n)
{
    if (n > FEW_CLASSES) {
        qsort(rated, (size_t)n, sizeof *rated, by_ratings);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        RatedClass own = rated[i];
        int64_t at = i;
        for (; at > 0 && has_fewer(&own, &rated[at - 1]); at--)
            rated[at] = rated[at - 1];
        rated[at] = own;
    }
}

static double entropy_of_ratings(const Row *row)
{
    double total = 0.0;
    for (int64_t first = 0; first < row->n_rated; first += LANES) {
        Lanes share = splat(1.0);
        for (int64_t i = first; i < row->n_rated && i < first + LANES; i++)
            share[i - first] = (double)row->ratings[i] / row->n_ratings;
        Lanes terms = share * log_lanes(share);
        for (int lane = 0; lane < LANES; lane++)
            total += terms[lane];
    }
    return fabs(total);
}

/* Total variation distance, class after class as numpy adds it. */
static double distance_to_ratings(const Row *row, int64_t n_classes, const double *share)
{
    double total = 0.0;
    for (int64_t k = 0; k < n_classes; k++)
        total += fabs(share[k] - row->probabilities[k]);
    return total / 2.0;
}

/* Whether a stable sort keeps the class of this score and index after the one before. */
static int is_after(double score, int64_t class_index, double score_before, int64_t class_before)
{
    return score_before < score || (score_before == score && class_before < class_index);
}

/* Classes without ratings, which a sort by ratings puts first in their own order: whether their scores rise, and the last of them. */
static int unrated_rise(const Row *row, int64_t n_classes, const double *share, double *largest, double *last_score, int64_t *last_class)
{
    int rises = 1;
    double most = -1.0, last = -1.0;
    int64_t at = -1;
    for (int64_t k = 0; k < n_classes; k++) {
        int is_rated = share[k] > 0.0;
        double score = row->probabilities[k], next = is_rated ? last : score;
        rises &= next >= last;
        most = next > most ? next : most;
        last = next;
        at = is_rated ? at : k;
    }
    *largest = most;
    *last_score = last;
    *last_class = at;
    return rises;
}

/* Compare the order of a prediction's classes with that of its ratings; `rated` is room for as many as there are classes. */
static Orders compare_orders(const Row *row, int64_t n_classes, const double *share, RatedClass *rated)
{
    for (int64_t i = 0; i < row->n_rated; i++)
        rated[i] = (RatedClass){row->ratings[i], row->rated[i], row->probabilities[row->rated[i]], 0.0};
    sort_rated(rated, row->n_rated);
    double largest, score_before;
    int64_t class_before, ratings_before = row->n_rated < n_classes ? 0 : -1;
    Orders orders = {unrated_rise(row, n_classes, share, &largest, &score_before, &class_before), 1, row->n_rated >= n_classes - 1};
    for (int64_t i = 0; i < row->n_rated; i++) {
        RatedClass *own = &rated[i];
        orders.same_order &= is_after(own->score, own->class_index, score_before, class_before);
        orders.is_untied &= own->ratings > ratings_before;
        own->largest_before = largest;
        largest = own->score > largest ? own->score : largest;
        score_before = own->score;
        class_before = own->class_index;
        ratings_before = own->ratings;
    }
    /* Where the ratings step up, all scores from there on must exceed all scores before. */
    double smallest = 2.0;
    for (int64_t i = row->n_rated - 1; i >= 0; i--) {
        smallest = rated[i].score < smallest ? rated[i].score : smallest;
        if (i == 0 || rated[i - 1].ratings < rated[i].ratings)
            orders.same_strict_order &= rated[i].largest_before < smallest;
    }
    return orders;
}

static void add_to_histogram(Table *table, int64_t bin, double weight)
{
    double *record = record_at(table, bin);
    record[0] += 1.0;
    record[1] += weight;
}

static void fill_label_distribution(Workspace *workspace, const Row *row)
{
    const int64_t n_classes = workspace->model.n_classes;
    double *share = workspace->share, w = row->weight;
    for (int64_t i = 0; i < row->n_rated; i++)
        share[row->rated[i]] = (double)row->ratings[i] / row->n_ratings;
    double gap = entropy_of_ratings(row) - row->entropy, distance = distance_to_ratings(row, n_classes, share);
    Orders orders = compare_orders(row, n_classes, share, workspace->rated);
    for (int64_t i = 0; i < row->n_rated; i++)
        share[row->rated[i]] = 0.0;
    int has_two = row->n_ratings > 1.0;
    double *record = record_at(&workspace->tables[LABEL_DISTRIBUTION_SUMS], row->replicate);
    record[DISTRIBUTION_PREDICTIONS] += 1.0;
    record[DISTRIBUTION_N_UNTIED] += orders.is_untied;
    record[DISTRIBUTION_N_TWO_RATINGS] += has_two;
    record[DISTRIBUTION_WEIGHT] += w;
    record[DISTRIBUTION_ENTROPY_GAP] += w * gap;
    record[DISTRIBUTION_ENTROPY_GAP_ABSOLUTE] += w * fabs(gap);
    record[DISTRIBUTION_DISTANCE] += w * distance;
    record[DISTRIBUTION_SAME_ORDER] += w * orders.same_order;
    record[DISTRIBUTION_SAME_STRICT_ORDER] += w * orders.same_strict_order;
    record[DISTRIBUTION_UNTIED] += w * orders.is_untied;
    record[DISTRIBUTION_WEIGHT_OF_TWO] += w * has_two;
    if (has_two) {
        double pairs = row->n_ratings * (row->n_ratings - 1.0), agreeing = 0.0;
        for (int64_t i = 0; i < row->n_rated; i++)
            agreeing += (double)row->ratings[i] * ((double)row->ratings[i] - 1.0);
        record[DISTRIBUTION_DISAGREEMENT] += w * ((pairs - agreeing) / pairs);
    }
    double scaled = (gap / workspace->model.log_n_classes + 1.0) / 2.0;
    add_to_histogram(&workspace->tables[LABEL_DISTRIBUTION_ENTROPY_GAP], derived_bin(scaled, HISTOGRAM_BINS), w);
    add_to_histogram(&workspace->tables[LABEL_DISTRIBUTION_DISTANCE], equal_width_bin(distance, HISTOGRAM_BINS, derived_rule(row)), w);
}
