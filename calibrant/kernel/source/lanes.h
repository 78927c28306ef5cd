/* Four rows at once. The compiler's vector types split into what the processor has: one AVX2, two SSE2 or NEON registers. */
#ifndef CALIBRANT_LANES_H
#define CALIBRANT_LANES_H

#include <stdint.h>
#include <string.h>

#define LANES 4

typedef double Lanes __attribute__((vector_size(8 * LANES)));
typedef int64_t LaneMask __attribute__((vector_size(8 * LANES))); /* all bits of a lane set, or none */
typedef uint64_t LaneBits __attribute__((vector_size(8 * LANES)));

static inline Lanes splat(double value)
{
    return (Lanes){value, value, value, value};
}

static inline Lanes select_lanes(LaneMask mask, Lanes where_set, Lanes elsewhere)
{
    return (Lanes)((mask & (LaneMask)where_set) | (~mask & (LaneMask)elsewhere));
}

static inline double sum_of_lanes(Lanes values)
{
    return (values[0] + values[1]) + (values[2] + values[3]);
}

static inline int any_lane(LaneMask mask)
{
    return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}

#endif
