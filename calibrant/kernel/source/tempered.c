/*
 * Losses of rows under softmax(beta z): negative log-likelihood (NLL) and Brier score with two derivatives in beta, squares of their
 * slopes, and tables of the score, at several betas in one pass; `calibrant/calibrators/temperature/row_losses.py`.
 *
 * Logits are relative to the largest of their row. Rows are in tiles, one row per lane: the logits by class, the weight of the correct
 * ratings, then as many slots of a rating's logit and weight as the tile's fullest row has ratings. Of many rows the tiles are
 * stored as float32: the errors of single rows, below 1e-6, then cancel in the sums. Of few they are computed in double at every pass.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <malloc.h>
#define aligned_alloc(alignment, size) _aligned_malloc(size, alignment)
#define free_aligned _aligned_free
#else
#define free_aligned free
#endif

#include "exponential.h"
#include "grid.h"
#include "tempered.h"

#define IMPOSSIBLE -1e15      /* relative logit of an impossible class: the exponential of any multiple in use is 0 */
#define LEAST_POSSIBLE -1e14  /* no other logit is below */
#define MASKED_LOGIT -1e6     /* `MASKED` of `calibrant/core/logits.py` */
#define MOST_LINKS 3
#define MOST_NODES 128

static inline double score_at(const TemperedRows *rows, int64_t place)
{
    return rows->is_single ? (double)((const float *)rows->scores)[place] : ((const double *)rows->scores)[place];
}

static inline int64_t row_of(const TemperedRows *rows, int64_t entry)
{
    return rows->entry_row ? rows->entry_row[entry] : entry;
}

static inline enum edge_rule edge_rule_of(const TemperedRows *rows, int64_t row)
{
    return rows->edge_rules ? (enum edge_rule)rows->edge_rules[row] : RULE_FLOAT32;
}

/* Four rows from `start` on, the last row repeated: scores by class, their largest, the first class that has it. */
typedef struct {
    Lanes *scores;
    Lanes top;
    LaneMask top_class;
} FourRows;

static inline void read_scores(const TemperedRows *rows, int64_t start, FourRows *four)
{
    int64_t place[LANES];
    for (int64_t lane = 0; lane < LANES; lane++)
        place[lane] = (start + lane < rows->n ? start + lane : rows->n - 1) * rows->row_stride;
    four->top = splat(-INFINITY);
    four->top_class = (LaneMask){0};
    for (int64_t k = 0; k < rows->n_classes; k++) {
        const int64_t column = k * rows->class_stride;
        Lanes score;
        for (int lane = 0; lane < LANES; lane++)
            score[lane] = score_at(rows, place[lane] + column);
        LaneMask is_larger = score > four->top;
        four->scores[k] = score;
        four->top = select_lanes(is_larger, score, four->top);
        four->top_class = (is_larger & k) | (~is_larger & four->top_class);
    }
}

/* Replace logits by those relative to the largest of their row; return the sum of their exponentials. */
static inline Lanes relate_logits(const TemperedRows *rows, FourRows *four)
{
    Lanes total = splat(0.0);
    for (int64_t k = 0; k < rows->n_classes; k++) {
        Lanes logit = four->scores[k] - four->top;
        logit = select_lanes(logit < splat(MASKED_LOGIT), splat(IMPOSSIBLE), logit);
        four->scores[k] = logit;
        total += exp_lanes(logit);
    }
    return total;
}

/* Read four rows, logits relative to the largest; write their scores at beta 1: as they were sent, or of logits by their softmax. */
static inline void read_rows(const TemperedRows *rows, int64_t start, FourRows *four)
{
    read_scores(rows, start, four);
    Lanes sent = rows->is_binary ? four->scores[1] : four->top;
    if (rows->is_logits) {
        Lanes total = relate_logits(rows, four);
        sent = (rows->is_binary ? exp_lanes(four->scores[1]) : splat(1.0)) / total;
    }
    for (int64_t lane = 0; lane < LANES && start + lane < rows->n; lane++)
        rows->sent[start + lane] = sent[lane];
}

/* Count the slots of the tiles of 8 rows. */
static void count_slots(TemperedRows *rows)
{
    int64_t entry = 0;
    rows->n_slots = rows->most_slots = 0;
    for (int64_t start = 0; start < rows->n; start += 8) {
        int64_t used[8] = {0}, most = 0;
        for (; entry < rows->n_entries && row_of(rows, entry) < start + 8; entry++) {
            int64_t *mine = used + (row_of(rows, entry) - start);
            most = ++*mine > most ? *mine : most;
        }
        rows->tile_slots[start / 8] = most;
        rows->n_slots += most;
        rows->most_slots = most > rows->most_slots ? most : rows->most_slots;
    }
}

typedef float Single __attribute__((vector_size(32)));
typedef int32_t SingleMask __attribute__((vector_size(32)));
typedef uint32_t SingleBits __attribute__((vector_size(32))); /* sums of other lanes may wrap around */

/*
 * 2^x of 8 lanes, at most 0; 0 below -62, so that squares are normal numbers. x is a whole number and the rest, |r| <= 1/2, of which the polynomial through the
 * Chebyshev nodes is within 3e-9, relative; rounding adds less than 2e-7.
 */
static inline Single exp2_single(Single x)
{
    const Single to_integer = (Single){} + 0x1.8p23f; /* adding it leaves the rounded sum in the low bits */
    SingleMask is_normal = x > -62.0f;                /* of the other lanes, whatever follows is replaced by 0 */
    Single shifted = x + to_integer, r = x - (shifted - to_integer);
    Single series = (Single){} + 0.0001546973202f;
    series = series * r + 0.001340043217f;
    series = series * r + 0.009618025603f;
    series = series * r + 0.05550327214f;
    series = series * r + 0.2402265121f;
    series = series * r + 0.6931472067f;
    series = series * r + 1.0f;
    return (Single)((SingleBits)is_normal & ((SingleBits)series + ((SingleBits)shifted << 23)));
}

/* Exponentials of beta times logits: `factor` is what logits are multiplied by. */
static inline float factor_single(double beta)
{
    return (float)(beta * LOG2_OF_E);
}

static inline double factor_double(double beta)
{
    return beta;
}

/* Exponential of 4 lanes, at most 0; 0 below -350, likewise. */
static inline Lanes exp_double(Lanes x)
{
    return select_lanes(x > splat(-350.0), exp_lanes(x), splat(0.0));
}

/* Natural logarithm of 8 positive normal lanes, as of `log_lanes`; the series of artanh ends with s^9/9. */
static inline Single log_single(Single x)
{
    SingleMask bits = (SingleMask)x, exponent = (bits - 0x3f3504f3) >> 23;
    Single f = (Single)(bits - (exponent << 23)) - 1.0f, whole = __builtin_convertvector(exponent, Single);
    Single s = f / (2.0f + f), square = s * s, series = (Single){} + 2.0f / 9;
    series = series * square + 2.0f / 7;
    series = series * square + 2.0f / 5;
    series = series * square + 2.0f / 3;
    return whole * 0.693359375f + (f - (s * (f - square * series) + whole * 2.12194440e-4f));
}

/* Bins of scores: within their rounding error of an edge they are on it, so in the bin below. */
static inline void bins_single(Single score, int64_t n_bins, int64_t *bins)
{
    SingleMask bin = __builtin_convertvector(score * ((float)n_bins * (1.0f - 0x1p-22f)), SingleMask);
    for (int lane = 0; lane < 8; lane++)
        bins[lane] = bin[lane];
}

static inline void bins_double(Lanes score, int64_t n_bins, int64_t *bins)
{
    for (int lane = 0; lane < LANES; lane++)
        bins[lane] = derived_bin(score[lane], n_bins);
}

#define JOINED(name, type) name##_##type
#define Real float
#define Mask int32_t
#define WIDTH 8
#define OF(name) JOINED(name, single)
#define LEAST_NORMAL 0x1p-126f
#define SQUARABLE 0x1p-31f
#define exponential_single exp2_single
#define logarithm_single log_single
#include "tempered_lanes.h"
#undef Real
#undef Mask
#undef WIDTH
#undef OF
#undef LEAST_NORMAL
#undef SQUARABLE
#define Real double
#define Mask int64_t
#define WIDTH LANES
#define OF(name) JOINED(name, double)
#define LEAST_NORMAL SMALLEST_NORMAL
#define SQUARABLE 0x1p-252
#define exponential_double exp_double
#define logarithm_double log_lanes
#include "tempered_lanes.h"

static void clear_row_sums(TemperedRows *rows)
{
    memset(rows->row_sums, 0, sizeof rows->row_sums);
    memset(rows->is_incorrect, 0, (size_t)rows->n);
    rows->n_impossible = 0;
}

/* Memory of four rows' scores, or NULL. */
static Lanes *four_rows(const TemperedRows *rows)
{
    return aligned_alloc(sizeof(Lanes), (size_t)rows->n_classes * sizeof(Lanes));
}

/* Write the tiles of all rows. Returns 0, or 1 without memory. */
static int64_t fill_tempered(TemperedRows *rows)
{
    float *tile = rows->tiles;
    int64_t entry = 0;
    Lanes *scores = four_rows(rows);
    if (!scores)
        return 1;
    clear_row_sums(rows);
    for (int64_t start = 0; start < rows->n; start += 8) {
        Weights_single weights = weights_single(rows, tile, fill_tile_single(rows, start, &entry, scores, tile));
        add_row_sums_single(rows, &weights);
        tile += (rows->n_classes + 1 + 2 * weights.n_slots) * 8;
    }
    free_aligned(scores);
    return 0;
}

static void add_stored_tiles(const TemperedRows *rows, const TemperedPass *pass, double *wide)
{
    const float *tile = rows->tiles;
    for (int64_t start = 0; start < rows->n; start += 8) {
        Weights_single weights = weights_single(rows, tile, rows->tile_slots[start / 8]);
        add_tile_of_order_single(rows, pass, tile, start, &weights, wide);
        tile += (rows->n_classes + 1 + 2 * weights.n_slots) * 8;
    }
}

static void add_computed_tiles(TemperedRows *rows, const TemperedPass *pass, Lanes *scores, double *tile, double *wide)
{
    int64_t entry = 0;
    clear_row_sums(rows);
    for (int64_t start = 0; start < rows->n; start += LANES) {
        Weights_double weights = weights_double(rows, tile, fill_tile_double(rows, start, &entry, scores, tile));
        add_row_sums_double(rows, &weights);
        add_tile_of_order_double(rows, pass, tile, start, &weights, wide);
    }
}

/* Add the lanes of the sums at one beta; from the beta that stored tiles were multiplied by, go to that asked for by derivatives. */
static void finish_sums(const double *wide, int64_t width, double beta, double logits, double *sums)
{
    for (int i = 0; i < N_TEMPERED; i++) {
        sums[i] = 0.0;
        for (int64_t lane = 0; lane < width; lane++)
            sums[i] += wide[i * width + lane];
    }
    const double step = width == 8 ? beta - (double)factor_single(beta) / LOG2_OF_E : 0.0;
    sums[OF_NLL] += step * (sums[NLL_SLOPE] + logits) - beta * logits;
    sums[NLL_SLOPE] += step * sums[NLL_CURVATURE];
    sums[OF_BRIER] += step * sums[BRIER_SLOPE];
    sums[BRIER_SLOPE] += step * sums[BRIER_CURVATURE];
}

/* Number of doubles of a tile of four rows. */
static size_t size_of_tile(const TemperedRows *rows)
{
    return (size_t)(rows->n_classes + 1 + 2 * rows->most_slots) * LANES;
}

/* Write what is asked at the betas of a pass. Returns 0, or 1 without memory. */
static int64_t pass_tempered(TemperedRows *rows, const TemperedPass *pass)
{
    const int is_narrow = rows->tiles && !pass->is_exact;
    const int64_t width = is_narrow ? 8 : LANES, n_sums = pass->n_betas * N_TEMPERED;
    double *wide = calloc((size_t)(n_sums * width) + size_of_tile(rows), sizeof *wide);
    Lanes *scores = four_rows(rows);
    if (!wide || !scores) {
        free(wide);
        free_aligned(scores);
        return 1;
    }
    if (pass->n_bins)
        memset(pass->tables, 0, (size_t)(pass->n_betas * 3 * pass->n_bins) * sizeof *pass->tables);
    if (is_narrow)
        add_stored_tiles(rows, pass, wide);
    else
        add_computed_tiles(rows, pass, scores, wide + n_sums * width, wide);
    for (int64_t b = 0; b < pass->n_betas; b++)
        finish_sums(wide + b * N_TEMPERED * width, width, pass->betas[b], rows->row_sums[LOGIT_SUM], pass->sums + b * N_TEMPERED);
    free(wide);
    free_aligned(scores);
    return 0;
}

/* Tables at many betas, from rows' normalisers at the nodes. Returns 0, or 1 without memory. */
static int64_t tables_of_tempered(TemperedRows *rows, const TemperedTables *asked)
{
    const int64_t n_bins = asked->n_bins;
    double *tile = malloc(size_of_tile(rows) * sizeof *tile);
    Lanes *scores = four_rows(rows);
    if (!tile || !scores) {
        free(tile);
        free_aligned(scores);
        return 1;
    }
    memset(asked->tables, 0, (size_t)(asked->n_betas * 3 * n_bins) * sizeof *asked->tables);
    int64_t entry = 0;
    for (int64_t start = 0; start < rows->n; start += LANES) {
        Lanes at_node[MOST_NODES][3];
        Weights_double weights = weights_double(rows, tile, fill_tile_double(rows, start, &entry, scores, tile));
        for (int64_t j = 0; j < asked->n_nodes; j++) {
            Classes_double sums;
            sum_classes_double(tile, rows->n_classes, asked->nodes[j], 0, WITHOUT_BRIER, &sums);
            Lanes inverse = splat(1.0) / sums.total, mean = sums.first * inverse, beta = splat(asked->nodes[j]);
            at_node[j][0] = log_lanes(sums.total);
            at_node[j][1] = beta * mean;
            at_node[j][2] = beta * beta * (sums.second * inverse - mean * mean) + beta * mean;
        }
        for (int64_t b = 0; b < asked->n_betas; b++) {
            const double *basis = asked->basis + 6 * b;
            const Lanes *before = at_node[asked->left[b]], *after = at_node[asked->left[b] + 1];
            Lanes log_total = splat(basis[0]) * before[0] + splat(basis[1]) * before[1] + splat(basis[2]) * before[2];
            log_total += splat(basis[3]) * after[0] + splat(basis[4]) * after[1] + splat(basis[5]) * after[2];
            add_scores_double(rows, tile, start, asked->betas[b], exp_lanes(-log_total), &weights, n_bins, asked->tables + b * 3 * n_bins);
        }
    }
    free(tile);
    free_aligned(scores);
    return 0;
}
