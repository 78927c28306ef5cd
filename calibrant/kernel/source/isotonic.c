/* Gain of isotonic recalibration: pooling of adjacent violators fused with the Brier score; `calibrant/metrics/corp.py`. */
#include "kernel.h"

/* Neighbouring cells with one recalibrated rate. */
typedef struct {
    double weight, correct, rate;
} Pool;

/* Return the weighted sum of rate^2 of the recalibrated rates; `pools` has room for n. */
static double pooled_squares(const double *weight, const double *rate, int64_t n, Pool *pools)
{
    int64_t last = -1;
    for (int64_t i = 0; i < n; i++) {
        Pool pool = {weight[i], weight[i] * rate[i], rate[i]};
        while (last >= 0 && pools[last].rate >= pool.rate) {
            pool.weight += pools[last].weight;
            pool.correct += pools[last].correct;
            pool.rate = pool.correct / pool.weight;
            last--;
        }
        pools[++last] = pool;
    }
    double squares = 0.0;
    for (int64_t i = 0; i <= last; i++)
        squares += pools[i].correct * pools[i].rate;
    return squares;
}

/*
 * Write the decrease of the mean Brier score by recalibration of each row of rates, at least 0.
 *
 * The score of forecasts f is the mean of f^2 - 2 f r + r. A recalibrated forecast is the mean rate of its pool, so that its
 * sum is minus the weight of the pool times the square of that rate.
 */
static void isotonic_gains(const Gains *rows, double *gain, Pool *pools)
{
    const double *score = rows->score;
    for (int64_t row = 0; row < rows->n_rows; row++) {
        const double *rate = rows->rates + row * rows->n, *weight = rows->weights + row % rows->n_weights * rows->n;
        double own = 0.0, total = 0.0;
        for (int64_t i = 0; i < rows->n; i++) {
            own += weight[i] * score[i] * (score[i] - 2.0 * rate[i]);
            total += weight[i];
        }
        double found = (own + pooled_squares(weight, rate, rows->n, pools)) / total;
        gain[row] = found > 0.0 ? found : 0.0;
    }
}
