/* Probabilities that were sent as float32; `calibrant/core/float32.py`, whose results these are to the bit. */
#include <math.h>

#include "kernel.h"

static const int narrow_units[] = {0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7, -8, 8};

/* The sum of n values in numpy's order, so that both give the same bits. */
static double narrow_sum(const float *values, int64_t n)
{
    if (n < 8) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += values[i];
        return sum;
    }
    if (n > 128) {
        int64_t half = n / 2 - n / 2 % 8;
        return narrow_sum(values, half) + narrow_sum(values + half, n - half);
    }
    double part[8];
    int64_t i = 8;
    for (int j = 0; j < 8; j++)
        part[j] = values[j];
    for (; i < n - n % 8; i += 8)
        for (int j = 0; j < 8; j++)
            part[j] += values[i + j];
    double sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; i < n; i++)
        sum += values[i];
    return sum;
}

/* A sum that makes both of the largest scores float32, up to rounding; 0 where there is none. */
static double narrow_likely_total(const double *scores, int64_t n)
{
    double top = scores[0] > scores[1] ? scores[0] : scores[1];
    double second = scores[0] > scores[1] ? scores[1] : scores[0];
    for (int64_t i = 2; i < n; i++) {
        if (scores[i] > top) {
            second = top;
            top = scores[i];
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    float near = (float)top;
    double unit = (double)(nextafterf(near, INFINITY) - near);
    for (size_t i = 0; i < sizeof narrow_units / sizeof *narrow_units; i++) {
        double total = (near + narrow_units[i] * unit) / top, wanted = second * total;
        if (fabs(wanted - (double)(float)wanted) <= 0x1p-51 * wanted)
            return total;
    }
    return 0.0;
}

/* Whether a row is float32 divided by its sum; if so, write these values and the sum. */
static int narrow_divided(const double *scores, int64_t n, float *sent, double *total)
{
    double likely = n < 2 ? 0.0 : narrow_likely_total(scores, n);
    if (!(likely > 0.0))
        return 0;
    for (int64_t i = 0; i < n; i++)
        sent[i] = (float)(scores[i] * likely);
    double sum = narrow_sum(sent, n);
    for (int64_t i = 0; i < n; i++)
        if ((double)sent[i] / sum != scores[i])
            return 0;
    *total = sum;
    return 1;
}

/* Write which rows four bytes a score restore, these scores, and what each row of them is divided by. */
EXPORTED void calibrant_kernel_narrow(const Narrowing *rows, uint8_t *fits, float *narrow, double *totals)
{
    const int64_t n_columns = rows->n_columns;
    for (int64_t row = 0; row < rows->n; row++) {
        const double *scores = rows->scores + row * n_columns;
        float *own = narrow + row * n_columns;
        int same = 1;
        for (int64_t i = 0; same && i < n_columns; i++)
            same = (double)(float)scores[i] == scores[i];
        totals[row] = 1.0;
        fits[row] = (uint8_t)(same || (!rows->is_logits[row] && narrow_divided(scores, n_columns, own, totals + row)));
        if (totals[row] == 1.0)
            for (int64_t i = 0; i < n_columns; i++)
                own[i] = (float)scores[i];
    }
}
