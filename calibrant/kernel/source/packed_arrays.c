/* Arrays of packed bytes, many at once; `calibrant/core/packed_together.py`. */
#include "kernel.h"

/* The integer at one place of an array whose bytes of equal significance are adjacent, the least significant first. */
static uint64_t packed_word(const PackedArray *array, int64_t i)
{
    uint64_t word = 0;
    for (int64_t byte = 0; byte < array->width; byte++)
        word |= (uint64_t)array->from[byte * array->n + i] << (8 * byte);
    return word;
}

/* The same with its sign. */
static int64_t packed_integer(const PackedArray *array, int64_t i)
{
    const int unused = (int)(64 - 8 * array->width);
    return (int64_t)(packed_word(array, i) << unused) >> unused;
}

/* Write the values of an array, in the width that they have in memory. */
static void read_packed(const PackedArray *array)
{
    for (int64_t i = 0; i < array->n; i++)
        switch (array->kind) {
        case PACKED_INTEGERS:
            ((int64_t *)array->to)[i] = packed_integer(array, i);
            break;
        case PACKED_WHOLE_NUMBERS:
            ((double *)array->to)[i] = (double)packed_integer(array, i);
            break;
        default: /* as stored; the least significant bytes come first in memory, too */
            for (int64_t byte = 0; byte < array->width; byte++)
                array->to[i * array->width + byte] = array->from[byte * array->n + i];
        }
}
