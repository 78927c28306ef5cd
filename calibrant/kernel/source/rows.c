/* Statistics of labelled rows; `calibrant/core/batch_sums.py`, `calibrant/core/batch.py` and `calibrant/core/logits.py`. */
#include <math.h>

#include "exponential.h"
#include "hashing.h"
#include "workspace.h"

/* Nats below the largest logit of the row from which a class counts as impossible. */
#define MASKED 1e6

static void take_probabilities(Tile *tile, int64_t n_classes)
{
    for (int64_t k = 0; k < n_classes; k++)
        for (int lane = 0; lane < LANES; lane++)
            tile->probability[k][lane] = tile->rows[lane].probabilities[k];
}

/* Largest probability, its first class, and sums of powers, class after class as numpy adds them. */
static void sum_over_classes(Tile *tile, int64_t n_classes)
{
    Lanes top = tile->probability[0], squares = top * top, cubes = squares * top;
    LaneMask top_class = {0, 0, 0, 0};
    for (int64_t k = 1; k < n_classes; k++) {
        Lanes p = tile->probability[k], square = p * p;
        LaneMask is_larger = p > top;
        top = select_lanes(is_larger, p, top);
        top_class = (is_larger & (LaneMask){k, k, k, k}) | (~is_larger & top_class);
        squares += square;
        cubes += square * p;
    }
    for (int lane = 0; lane < LANES; lane++) {
        Row *row = &tile->rows[lane];
        row->confidence = top[lane];
        row->top_class = top_class[lane];
        row->squares = squares[lane];
        row->cubes = cubes[lane];
    }
}

/* Logarithms relative to the largest, of probabilities. */
static void take_logarithms(Tile *tile, int64_t n_classes)
{
    Lanes top;
    for (int lane = 0; lane < LANES; lane++)
        top[lane] = tile->rows[lane].confidence;
    Lanes log_top = log_positive(top);
    for (int64_t k = 0; k < n_classes; k++) {
        LaneMask is_possible = tile->probability[k] > splat(0.0);
        Lanes logit = log_positive(select_lanes(is_possible, tile->probability[k] / top, splat(1.0)));
        tile->is_possible[k] = is_possible;
        tile->logit[k] = logit;
        tile->log_probability[k] = select_lanes(is_possible, logit + log_top, splat(0.0));
    }
}

/* Logits relative to the largest. */
static void take_logits(Tile *tile, const Batch *batch, int64_t n_classes)
{
    for (int lane = 0; lane < LANES; lane++) {
        const double *logits = batch->scores + (tile->rows[lane].index < 0 ? tile->rows[0].index : tile->rows[lane].index) * n_classes;
        double largest = logits[0];
        for (int64_t k = 1; k < n_classes; k++)
            largest = logits[k] > largest ? logits[k] : largest;
        for (int64_t k = 0; k < n_classes; k++)
            tile->logit[k][lane] = logits[k] - largest;
    }
    Lanes total = splat(0.0);
    for (int64_t k = 0; k < n_classes; k++) {
        LaneMask is_possible = tile->logit[k] >= splat(-MASKED);
        tile->is_possible[k] = is_possible;
        tile->logit[k] = select_lanes(is_possible, tile->logit[k], splat(0.0));
        total += select_lanes(is_possible, exp_lanes(tile->logit[k]), splat(0.0));
    }
    Lanes log_total = log_lanes(total);
    for (int64_t k = 0; k < n_classes; k++)
        tile->log_probability[k] = select_lanes(tile->is_possible[k], tile->logit[k] - log_total, splat(0.0));
}

static void sum_entropy(Tile *tile, int64_t n_classes)
{
    Lanes total = splat(0.0);
    for (int64_t k = 0; k < n_classes; k++)
        total += tile->log_probability[k] * tile->probability[k];
    for (int lane = 0; lane < LANES; lane++)
        tile->rows[lane].entropy = fabs(total[lane]);
}

/* Most frequent class, ties to the lowest. */
static void choose_majority(Row *row)
{
    int64_t most = 0, n_most = 0;
    for (int64_t i = 0; i < row->n_rated; i++) {
        if (row->ratings[i] > most) {
            most = row->ratings[i];
            n_most = 0;
            row->majority = row->rated[i];
        }
        n_most += row->ratings[i] == most;
    }
    row->is_tied = n_most > 1;
}

/* One rating by the prediction's hash: the class at place floor(u n) of the sorted ratings. */
static void choose_single(Row *row, uint64_t prediction_hash)
{
    int64_t place = (int64_t)floor(uniform(mix(prediction_hash)) * row->n_ratings);
    row->single = -1;
    for (int64_t i = 0; i < row->n_rated && row->single < 0; i++) {
        place -= row->ratings[i];
        if (place < 0)
            row->single = row->rated[i];
    }
}

static void sum_ratings(Row *row, const Tile *tile, int lane)
{
    row->rated_probability = row->loss = row->n_impossible = 0.0;
    row->top_hits = row->score_hits = (Hits){{0}};
    for (int64_t i = 0; i < row->n_rated; i++) {
        int64_t k = row->rated[i];
        double ratings = (double)row->ratings[i];
        row->rated_probability += ratings * row->probabilities[k];
        row->loss -= ratings * tile->log_probability[k][lane];
        if (!tile->is_possible[k][lane])
            row->n_impossible += ratings;
        if (k == row->top_class)
            row->top_hits = hits_of(row, k, ratings);
    }
}

/* Score of replicates, units and the temperature's tables: class 1 of binary models, else the top class. */
static void take_score(Row *row, int is_binary)
{
    if (!is_binary) {
        row->score = row->confidence;
        row->score_hits = row->top_hits;
        return;
    }
    row->score = row->probabilities[1];
    for (int64_t i = 0; i < row->n_rated; i++)
        if (row->rated[i] == 1)
            row->score_hits = hits_of(row, 1, (double)row->ratings[i]);
}

/* Complete a tile whose rows have their index, ratings, unit and weight. Lanes without a row repeat the first, with weight 0. */
static void complete_tile(Workspace *workspace, const Batch *batch)
{
    Tile *tile = &workspace->tile;
    const int64_t n_classes = workspace->model.n_classes;
    for (int64_t lane = tile->n; lane < LANES; lane++) {
        tile->rows[lane] = tile->rows[0];
        tile->rows[lane].index = -1;
        tile->rows[lane].weight = 0.0;
    }
    take_probabilities(tile, n_classes);
    sum_over_classes(tile, n_classes);
    if (batch->is_logits)
        take_logits(tile, batch, n_classes);
    else
        take_logarithms(tile, n_classes);
    sum_entropy(tile, n_classes);
    for (int lane = 0; lane < LANES; lane++) {
        Row *row = &tile->rows[lane];
        int64_t index = row->index < 0 ? tile->rows[0].index : row->index;
        /* A row without a name by its scores alone, so that replicates do not differ in their labels by more than chance. */
        uint64_t unit = batch->unit_from_row ? workspace->score_hash[index] : batch->unit_hash[index];
        row->replicate = (int64_t)(mix(unit ^ 0xA5A5A5A5u) >> 58);
        choose_majority(row);
        choose_single(row, batch->prediction_hash[index]);
        sum_ratings(row, tile, lane);
        take_score(row, (int)workspace->model.is_binary);
    }
}
