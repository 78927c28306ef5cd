/* Weighted sums of simulated gaps, many at once; `calibrant/inference/gap_sums.py`. */
#include <math.h>
#include <string.h>

#include "kernel.h"

/* Add a bin to the sums of all resamples. Each sum is added to bin after bin, so that vectors of any width give the same bits. */
static void add_absolute(float *restrict sums, const float *restrict factor, const float *restrict noise, float truth, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sums[i] += factor[i] * fabsf(truth + noise[i]);
}

static void add_square(float *restrict sums, const float *restrict factor, const float *restrict noise, float truth, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float gap = truth + noise[i];
        sums[i] += factor[i] * (gap * gap);
    }
}

/* Write the sums of each truth, one for each resample. */
static void sum_noisy_gaps(const NoisyGaps *gaps, float *sums)
{
    const int64_t n = gaps->n_resamples;
    memset(sums, 0, (size_t)(gaps->n_truths * n) * sizeof *sums);
    for (int64_t truth = 0; truth < gaps->n_truths; truth++, sums += n)
        for (int64_t bin = 0; bin < gaps->n_bins; bin++) {
            const float *factor = gaps->factors + bin * n, *noise = gaps->noise + bin * n;
            float own = gaps->truths[truth * gaps->n_bins + bin];
            if (gaps->is_squared)
                add_square(sums, factor, noise, own, n);
            else
                add_absolute(sums, factor, noise, own, n);
        }
}
