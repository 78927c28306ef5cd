/*
 * Exponential and logarithm of four lanes. Both are within 1e-15, relative, of the true value; tests measure it.
 *
 * log: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh(s) with s = (m - 1) / (m + 1), |s| < 0.1716. The series
 * 2 s (1 + s^2/3 + s^4/5 + ...) ends with s^20/21; the next terms add less than 2 s^22 / 23 / (1 - s^2) = 1.3e-18, relative.
 *
 * exp: x = e ln 2 + r with |r| < 0.3466. The series of exp r ends with r^13/13!; the next terms add less than
 * r^14 / 14! / (1 - r / 15) = 4.2e-18, below 6e-18 relative to exp r.
 *
 * Rounding adds less than four units in the last place, 9e-16. ln 2 is split so that e times its upper part is exact.
 */
#ifndef CALIBRANT_EXPONENTIAL_H
#define CALIBRANT_EXPONENTIAL_H

#include <math.h>

#include "lanes.h"

#define LN2_UPPER 0x1.62e42feep-1 /* 32 bits; e has at most 11 */
#define LN2_LOWER 0x1.a39ef35793c76p-33
#define LOG2_OF_E 0x1.71547652b82fep+0
#define MIN_EXPONENT -708.0 /* below, results are subnormal and are taken as 0 */
#define SMALLEST_NORMAL 0x1p-1022
#define BITS_OF_HALF_ROOT 0x3FE6A09E667F3BCDull /* sqrt(1/2) */
#define MANTISSA_BITS 52

/* Exponential of each lane, at most 0; 0 below `MIN_EXPONENT`. */
static inline Lanes exp_lanes(Lanes x)
{
    static const double inverse_factorial[] = {
        1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0,
        1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0,
    };
    const Lanes to_integer = splat(0x1.8p52); /* adding it leaves the rounded sum in the low bits */
    LaneMask is_tiny = x < splat(MIN_EXPONENT);
    x = select_lanes(is_tiny, splat(MIN_EXPONENT), x);
    Lanes shifted = x * splat(LOG2_OF_E) + to_integer;
    Lanes exponent = shifted - to_integer;
    Lanes r = (x - exponent * splat(LN2_UPPER)) - exponent * splat(LN2_LOWER);
    Lanes series = splat(inverse_factorial[0]);
    for (int i = 1; i < 14; i++)
        series = series * r + splat(inverse_factorial[i]);
    Lanes scaled = (Lanes)((LaneBits)series + ((LaneBits)shifted << MANTISSA_BITS));
    return select_lanes(is_tiny, splat(0.0), scaled);
}

/* Natural logarithm of each lane, positive and normal. */
static inline Lanes log_lanes(Lanes x)
{
    const LaneBits offset = (LaneBits)splat(0x1p52), exponent_mask = ~(((LaneBits){1, 1, 1, 1} << MANTISSA_BITS) - 1);
    LaneBits bits = (LaneBits)x;
    LaneBits above_half_root = bits - BITS_OF_HALF_ROOT;
    /* Exponent plus 1024, which is positive, becomes the low bits of a number from 2^52 on. */
    LaneBits biased = (above_half_root + (1024ull << MANTISSA_BITS)) >> MANTISSA_BITS;
    Lanes exponent = (Lanes)(biased | offset) - splat(0x1p52 + 1024.0);
    Lanes f = (Lanes)(bits - (above_half_root & exponent_mask)) - splat(1.0);
    Lanes s = f / (splat(2.0) + f), square = s * s;
    Lanes series = splat(2.0 / 21.0);
    for (int odd = 19; odd >= 3; odd -= 2)
        series = series * square + splat(2.0 / odd);
    return exponent * splat(LN2_UPPER) + (f - (s * (f - square * series) - exponent * splat(LN2_LOWER)));
}

/* Natural logarithm of each lane, positive; subnormal lanes are left to the library. */
static inline Lanes log_positive(Lanes x)
{
    LaneMask is_subnormal = x < splat(SMALLEST_NORMAL);
    if (!any_lane(is_subnormal))
        return log_lanes(x);
    Lanes result = log_lanes(select_lanes(is_subnormal, splat(1.0), x));
    for (int lane = 0; lane < LANES; lane++)
        if (is_subnormal[lane])
            result[lane] = log(x[lane]);
    return result;
}

#endif
