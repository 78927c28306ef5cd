/*
 * The functions of `tempered.c` for one type of number: `Real` in vectors of `WIDTH` lanes, with `Mask` of their comparisons and
 * `OF(name)` for their names. Included once for float and once for double.
 */

typedef Real OF(Vector) __attribute__((vector_size(32)));
typedef Mask OF(Comparison) __attribute__((vector_size(32)));
typedef double OF(Wide) __attribute__((vector_size(8 * WIDTH)));

static inline OF(Vector) OF(all)(Real value)
{
    OF(Vector) every;
    for (int lane = 0; lane < WIDTH; lane++)
        every[lane] = value;
    return every;
}

static inline OF(Vector) OF(where)(OF(Comparison) mask, OF(Vector) values)
{
    return (OF(Vector))(mask & (OF(Comparison))values);
}

static inline OF(Vector) OF(load)(const Real *from)
{
    OF(Vector) values;
    memcpy(&values, from, sizeof values);
    return values;
}

/* Logarithms of one class's probabilities, those of small lanes by the library. */
static OF(Vector) OF(small_logarithms)(const TemperedRows *rows, int64_t start, int64_t k, OF(Comparison) is_small, OF(Vector) logit)
{
    for (int lane = 0; lane < WIDTH; lane++) {
        if (!is_small[lane])
            continue;
        int64_t row = start + lane < rows->n ? start + lane : rows->n - 1;
        double sent = score_at(rows, row * rows->row_stride + k * rows->class_stride);
        logit[lane] = (Real)(sent > 0.0 ? log(sent) : IMPOSSIBLE);
    }
    return logit;
}

static inline OF(Vector) OF(smaller)(OF(Vector) a, OF(Vector) b)
{
    OF(Comparison) is_smaller = a < b;
    return (OF(Vector))((is_smaller & (OF(Comparison))a) | (~is_smaller & (OF(Comparison))b));
}

/* Replace probabilities in a tile by their logarithms, relative to the largest of their row. */
static inline void OF(take_logarithms)(const TemperedRows *rows, int64_t start, Real *tile)
{
    const OF(Vector) least = OF(all)(LEAST_NORMAL), one = OF(all)(1);
    OF(Vector) top = OF(all)((Real)IMPOSSIBLE);
    for (int64_t k = 0; k < rows->n_classes; k++) {
        OF(Vector) p = OF(load)(tile + k * WIDTH);
        OF(Comparison) is_small = p < least;
        OF(Vector) logit = OF(logarithm)((OF(Vector))((is_small & (OF(Comparison))one) | (~is_small & (OF(Comparison))p)));
        if (any_lane((LaneMask)is_small))
            logit = OF(small_logarithms)(rows, start, k, is_small, logit);
        OF(Comparison) is_larger = logit > top;
        top = (OF(Vector))((is_larger & (OF(Comparison))logit) | (~is_larger & (OF(Comparison))top));
        memcpy(tile + k * WIDTH, &logit, sizeof logit);
    }
    for (int64_t k = 0; k < rows->n_classes; k++) {
        OF(Vector) logit = OF(load)(tile + k * WIDTH) - top;
        memcpy(tile + k * WIDTH, &logit, sizeof logit);
    }
}

/* Write the ratings of a tile's rows to slots, from `*entry` on; return the number of slots. */
static inline int64_t OF(fill_slots)(TemperedRows *rows, int64_t start, const int64_t *top_class, int64_t *entry, Real *tile)
{
    Real *correct = tile + rows->n_classes * WIDTH, *slots = correct + WIDTH;
    int64_t used[WIDTH] = {0}, n_slots = 0, end = start + WIDTH;
    memset(correct, 0, WIDTH * sizeof *correct);
    for (; *entry < rows->n_entries && row_of(rows, *entry) < end; ++*entry) {
        int64_t lane = row_of(rows, *entry) - start, class_index = rows->entry_class[*entry], slot = used[lane]++;
        if (slot == n_slots)
            memset(slots + 2 * n_slots++ * WIDTH, 0, 2 * WIDTH * sizeof *slots);
        Real weight = (Real)(rows->entry_weight ? rows->entry_weight[*entry] : 1.0);
        slots[2 * slot * WIDTH + lane] = tile[class_index * WIDTH + lane];
        rows->n_impossible += tile[class_index * WIDTH + lane] < (Real)LEAST_POSSIBLE;
        slots[(2 * slot + 1) * WIDTH + lane] = weight;
        if (class_index == (rows->is_binary ? 1 : top_class[lane]))
            correct[lane] += weight;
        rows->is_incorrect[start + lane] |= class_index != top_class[lane] && weight > (Real)0;
    }
    return n_slots;
}

/* Write the tile of the rows from `start` on, whose ratings start at `*entry`; return its number of slots. */
static inline int64_t OF(fill_tile)(TemperedRows *rows, int64_t start, int64_t *entry, Lanes *scores, Real *tile)
{
    int64_t top_class[WIDTH];
    for (int64_t lane = 0; lane < WIDTH; lane += LANES) {
        FourRows four = {.scores = scores};
        read_rows(rows, start + lane, &four);
        for (int64_t k = 0; k < rows->n_classes; k++)
            for (int each = 0; each < LANES; each++)
                tile[k * WIDTH + lane + each] = (Real)scores[k][each];
        for (int each = 0; each < LANES; each++)
            top_class[lane + each] = four.top_class[each];
    }
    if (!rows->is_logits)
        OF(take_logarithms)(rows, start, tile);
    return OF(fill_slots)(rows, start, top_class, entry, tile);
}

/* What no beta changes of a tile's rows. */
typedef struct {
    const Real *slots;
    int64_t n_slots;
    OF(Vector) weight, weight_all, linear, correct;
} OF(Weights);

static inline OF(Weights) OF(weights)(const TemperedRows *rows, const Real *tile, int64_t n_slots)
{
    const Real *correct = tile + rows->n_classes * WIDTH;
    OF(Weights) found = {.slots = correct + WIDTH, .n_slots = n_slots, .correct = OF(load)(correct)};
    for (int64_t slot = 0; slot < n_slots; slot++) {
        OF(Vector) logit = OF(load)(found.slots + 2 * slot * WIDTH), weight = OF(load)(found.slots + (2 * slot + 1) * WIDTH);
        OF(Comparison) is_possible = logit > (Real)LEAST_POSSIBLE;
        found.weight_all += weight;
        found.weight += OF(where)(is_possible, weight);
        found.linear += OF(where)(is_possible, weight * logit);
    }
    return found;
}

static inline double OF(added)(OF(Vector) values)
{
    double total = 0.0;
    for (int lane = 0; lane < WIDTH; lane++)
        total += (double)values[lane];
    return total;
}

static inline void OF(add_row_sums)(TemperedRows *rows, const OF(Weights) *weights)
{
    rows->row_sums[POSSIBLE_WEIGHT] += OF(added)(weights->weight);
    rows->row_sums[FULL_WEIGHT] += OF(added)(weights->weight_all);
    rows->row_sums[LOGIT_SUM] += OF(added)(weights->linear);
}

/* Sums over the classes of some rows, per lane. */
typedef struct {
    OF(Vector) total, first, second, square, square_first, square_second;
} OF(Classes);

/* Sums over their ratings, weighted, of exp(beta z), of it times z and times z^2. */
typedef struct {
    OF(Vector) power, first, second;
} OF(Rated);

static inline __attribute__((always_inline)) void OF(add_class)(OF(Classes) *sums, OF(Vector) power, OF(Vector) z, int order)
{
    OF(Vector) weighted = power * z;
    sums->total += power;
    sums->first += weighted;
    sums->second += weighted * z;
    if (order >= WITH_BRIER)
        sums->square += power * power;
    if (order >= WITH_BRIER_DERIVATIVES) {
        sums->square_first += power * weighted;
        sums->square_second += weighted * weighted;
    }
}

/* Square of exponentials: 0 where the square of the result would not be a normal number. */
static inline OF(Vector) OF(squared)(OF(Vector) power)
{
    power = OF(where)(power > OF(all)(SQUARABLE), power);
    return power * power;
}

/* Sums at beta, 2 beta and 4 beta, or at beta alone. `is_chain` and `order` are constants where this is inlined. */
static inline __attribute__((always_inline)) void OF(sum_classes)(
    const Real *tile, int64_t n_classes, double beta, int is_chain, int order, OF(Classes) *sums)
{
    const OF(Vector) factor = OF(all)(OF(factor)(beta));
    OF(Classes) one = {0}, two = {0}, four = {0};
    for (int64_t k = 0; k < n_classes; k++, tile += WIDTH) {
        OF(Vector) z = OF(load)(tile), power = OF(exponential)(factor * z);
        OF(add_class)(&one, power, z, order);
        if (!is_chain)
            continue;
        power = OF(squared)(power);
        OF(add_class)(&two, power, z, order);
        power = OF(squared)(power);
        OF(add_class)(&four, power, z, order);
    }
    sums[0] = one;
    if (is_chain) {
        sums[1] = two;
        sums[2] = four;
    }
}

/* The same over ratings. */
static inline __attribute__((always_inline)) void OF(sum_ratings)(const OF(Weights) *weights, double beta, int links, OF(Rated) *sums)
{
    const OF(Vector) factor = OF(all)(OF(factor)(beta));
    for (int link = 0; link < links; link++)
        sums[link] = (OF(Rated)){0};
    for (int64_t slot = 0; slot < weights->n_slots; slot++) {
        OF(Vector) z = OF(load)(weights->slots + 2 * slot * WIDTH), weight = OF(load)(weights->slots + (2 * slot + 1) * WIDTH);
        OF(Vector) power = OF(exponential)(factor * z);
        for (int link = 0; link < links; link++) {
            OF(Vector) rated = weight * power;
            sums[link].power += rated;
            sums[link].first += rated * z;
            sums[link].second += rated * z * z;
            power = OF(squared)(power);
        }
    }
}

static inline void OF(add_wide)(double *sums, int which, OF(Vector) values)
{
    OF(Wide) wide;
    memcpy(&wide, sums + which * WIDTH, sizeof wide);
    wide += __builtin_convertvector(values, OF(Wide));
    memcpy(sums + which * WIDTH, &wide, sizeof wide);
}

/* What is computed of a tile's rows at one beta. */
typedef struct {
    OF(Vector) inverse, mean, variance, log_total, slope, brier_slope;
} OF(Losses);

/* Add the Brier score of a tile's rows, with its derivatives if `order` asks for them. */
static inline __attribute__((always_inline)) void OF(add_brier)(
    const OF(Classes) *at, const OF(Rated) *rated, const OF(Weights) *weights, OF(Losses) *losses, int order, double *sums)
{
    const OF(Vector) inverse = losses->inverse, mean = losses->mean, variance = losses->variance;
    const OF(Vector) squared = inverse * inverse, square = at->square * squared, chosen = rated->power * inverse;
    OF(add_wide)(sums, OF_BRIER, weights->weight_all * (square + (Real)1) - (Real)2 * chosen);
    if (order < WITH_BRIER_DERIVATIVES)
        return;
    /* p' = p (z - mean), and p'' = p ((z - mean)^2 - variance). */
    OF(Vector) first = rated->first * inverse, second = rated->second * inverse;
    OF(Vector) chosen_slope = first - mean * chosen;
    OF(Vector) chosen_curve = second - (Real)2 * mean * first + (mean * mean - variance) * chosen;
    OF(Vector) one = at->square_first * squared, two = at->square_second * squared;
    OF(Vector) square_slope = one - square * mean;
    OF(Vector) square_curve = (Real)2 * (two - (Real)2 * mean * one + mean * mean * square) - square * variance;
    OF(Vector) slope = losses->brier_slope = (Real)2 * (weights->weight_all * square_slope - chosen_slope);
    OF(add_wide)(sums, BRIER_SLOPE, slope);
    OF(add_wide)(sums, BRIER_CURVATURE, (Real)2 * (weights->weight_all * square_curve - chosen_curve));
    OF(add_wide)(sums, BRIER_SQUARES, slope * slope);
}

/* Add the NLL of a tile's rows, without what is linear in the logits, and return their values. */
static inline __attribute__((always_inline)) OF(Losses) OF(add_nll)(const OF(Classes) *at, const OF(Weights) *weights, double *sums)
{
    OF(Losses) found = {.inverse = OF(all)(1) / at->total, .log_total = OF(logarithm)(at->total)};
    found.mean = at->first * found.inverse;
    found.variance = at->second * found.inverse - found.mean * found.mean;
    found.variance = OF(where)(found.variance > (Real)0, found.variance);
    found.slope = weights->weight * found.mean - weights->linear;
    OF(add_wide)(sums, OF_NLL, weights->weight * found.log_total);
    OF(add_wide)(sums, NLL_SLOPE, found.slope);
    OF(add_wide)(sums, NLL_CURVATURE, weights->weight * found.variance);
    OF(add_wide)(sums, NLL_SQUARES, found.slope * found.slope);
    return found;
}

static inline void OF(write_rows)(
    const TemperedRows *rows, const TemperedPass *pass, int64_t start, double beta, const OF(Losses) *at, const OF(Weights) *weights)
{
    for (int64_t lane = 0; lane < WIDTH && start + lane < rows->n; lane++) {
        double *row = pass->row_values + start + lane;
        row[0] = (double)(weights->weight[lane] * at->log_total[lane]) - beta * (double)weights->linear[lane];
        row[rows->n] = (double)at->slope[lane];
        row[2 * rows->n] = (double)at->brier_slope[lane];
    }
}

/* Add the scores of a tile's rows at one beta to a table, from the inverse of their normalisers. */
static inline void OF(add_scores)(const TemperedRows *rows, const Real *tile, int64_t start, double beta, OF(Vector) inverse,
                                  const OF(Weights) *weights, int64_t n_bins, double *table)
{
    const int64_t n_lanes = rows->n - start < WIDTH ? rows->n - start : WIDTH;
    const int is_sent = beta == 1.0;
    if (rows->is_binary && !is_sent)
        inverse *= OF(exponential)(OF(all)(OF(factor)(beta)) * OF(load)(tile + WIDTH));
    inverse = OF(smaller)(inverse, OF(all)(1));
    int64_t bins[WIDTH];
    OF(bins)(inverse, n_bins, bins);
    for (int64_t lane = 0; lane < n_lanes; lane++) {
        double score = is_sent ? rows->sent[start + lane] : (double)inverse[lane];
        double *cell = table + 3 * (is_sent ? equal_width_bin(score, n_bins, edge_rule_of(rows, start + lane)) : bins[lane]);
        cell[0] += (double)weights->weight_all[lane];
        cell[1] += (double)weights->weight_all[lane] * score;
        cell[2] += (double)weights->correct[lane];
    }
}

/* Add a tile's rows at some betas from `first` on, each the double of the one before. */
static inline __attribute__((always_inline)) void OF(add_chain)(
    const TemperedRows *rows, const TemperedPass *pass, const Real *tile, int64_t start, const OF(Weights) *weights, int64_t first, int is_chain, int order, double *wide)
{
    OF(Classes) at[MOST_LINKS];
    OF(Rated) rated[MOST_LINKS];
    OF(sum_classes)(tile, rows->n_classes, pass->betas[first], is_chain, order, at);
    if (order >= WITH_BRIER)
        OF(sum_ratings)(weights, pass->betas[first], is_chain ? MOST_LINKS : 1, rated);
    for (int link = 0; link < (is_chain ? MOST_LINKS : 1); link++) {
        const int64_t b = first + link * pass->doubles_every;
        const double beta = pass->betas[b];
        double *sums = wide + b * N_TEMPERED * WIDTH;
        OF(Losses) losses = OF(add_nll)(at + link, weights, sums);
        if (order >= WITH_BRIER)
            OF(add_brier)(at + link, rated + link, weights, &losses, order, sums);
        if (pass->row_values && b + 1 == pass->n_betas)
            OF(write_rows)(rows, pass, start, beta, &losses, weights);
        if (pass->n_bins)
            OF(add_scores)(rows, tile, start, beta, losses.inverse, weights, pass->n_bins, pass->tables + b * 3 * pass->n_bins);
    }
}

/* Add a tile's rows at all betas. `order` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void OF(add_tile)(
    const TemperedRows *rows, const TemperedPass *pass, const Real *tile, int64_t start, const OF(Weights) *weights, int order, double *wide)
{
    const int64_t step = pass->doubles_every;
    int64_t b = 0;
    for (; step && b + MOST_LINKS * step <= pass->n_betas; b += MOST_LINKS * step)
        for (int64_t first = b; first < b + step; first++)
            OF(add_chain)(rows, pass, tile, start, weights, first, 1, order, wide);
    for (; b < pass->n_betas; b++)
        OF(add_chain)(rows, pass, tile, start, weights, b, 0, order, wide);
}

static void OF(add_tile_of_order)(
    const TemperedRows *rows, const TemperedPass *pass, const Real *tile, int64_t start, const OF(Weights) *weights, double *wide)
{
    if (pass->order == WITHOUT_BRIER)
        OF(add_tile)(rows, pass, tile, start, weights, WITHOUT_BRIER, wide);
    else if (pass->order == WITH_BRIER)
        OF(add_tile)(rows, pass, tile, start, weights, WITH_BRIER, wide);
    else
        OF(add_tile)(rows, pass, tile, start, weights, WITH_BRIER_DERIVATIVES, wide);
}
