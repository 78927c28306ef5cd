/*
 * Decimal numbers to the nearest double, by the algorithm of Eisel and Lemire.
 *
 * Source: Lemire, Number parsing at a gigabyte per second (Software: Practice and Experience 2021), whose proof covers mantissas
 * of at most 64 bits with the 128-bit powers of five used here.
 */
#ifndef CALIBRANT_DECIMALS_H
#define CALIBRANT_DECIMALS_H

#include <stdint.h>
#include <string.h>

#define MIN_POWER (-342)
#define MAX_POWER 308
#define MAX_EXACT_MANTISSA (1ull << 53)
#define MAX_EXACT_POWER 22
#define MANTISSA_BITS 52

/* High and low half of the leading 128 bits of a power of five. */
typedef uint64_t PowerOfFive[2];

static const double EXACT_POWERS[MAX_EXACT_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                                         1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Write mantissa times 10^power, of a mantissa above 0. Returns 0 where the result is not a normal number, or not certain. */
static inline int nearest_double(uint64_t mantissa, int64_t power, const PowerOfFive *powers, double *found)
{
    if (mantissa <= MAX_EXACT_MANTISSA && -MAX_EXACT_POWER <= power && power <= MAX_EXACT_POWER) {
        /* Both are exact, so that one operation rounds once. */
        *found = power < 0 ? (double)mantissa / EXACT_POWERS[-power] : (double)mantissa * EXACT_POWERS[power];
        return 1;
    }
    if (power < MIN_POWER || power > MAX_POWER)
        return 0;
    const uint64_t *five = powers[power - MIN_POWER];
    int leading = __builtin_clzll(mantissa);
    mantissa <<= leading;
    unsigned __int128 product = (unsigned __int128)mantissa * five[0];
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    const uint64_t undecided = UINT64_MAX >> (MANTISSA_BITS + 3);
    if ((high & undecided) == undecided) {
        uint64_t more = (uint64_t)((unsigned __int128)mantissa * five[1] >> 64);
        low += more;
        high += low < more;
    }
    if (low == UINT64_MAX && (power < -27 || power > 55))
        return 0;
    int upper = (int)(high >> 63), shift = upper + 64 - MANTISSA_BITS - 3;
    uint64_t bits = high >> shift;
    int64_t exponent = (((152170 + 65536) * power) >> 16) + 63 + upper - leading + 1023;
    if (exponent <= 0)
        return 0;
    /* Halfway between two doubles: to the even one. */
    if (low <= 1 && -4 <= power && power <= 23 && (bits & 3) == 1 && bits << shift == high)
        bits &= ~1ull;
    bits = (bits + (bits & 1)) >> 1;
    if (bits >> (MANTISSA_BITS + 1)) {
        bits = 1ull << MANTISSA_BITS;
        exponent++;
    }
    if (exponent >= 0x7ff)
        return 0;
    bits = (bits & ((1ull << MANTISSA_BITS) - 1)) | (uint64_t)exponent << MANTISSA_BITS;
    memcpy(found, &bits, sizeof bits);
    return 1;
}

#endif
