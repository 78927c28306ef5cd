/*
 * Scratch table of one block: a record of counts and sums for each cell, in the order of the block's columns.
 *
 * Records are zero between fills. The first count of a touched cell is positive, so a zero tells an untouched one, and only
 * touched cells are read and cleared. Counts are whole numbers in float64, exact up to 2^53.
 */
#ifndef CALIBRANT_TABLE_H
#define CALIBRANT_TABLE_H

#include "kernel.h"

typedef struct {
    double *records; /* (size, width) */
    int32_t *touched;
    int64_t n_touched, size, width, n_counts, n_sums;
} Table;

static inline int is_wanted(const Table *table)
{
    return table->size > 0;
}

/* Record of a cell, to which the caller adds at once, first to the first count. */
static inline double *record_at(Table *table, int64_t place)
{
    double *record = table->records + place * table->width;
    if (record[0] == 0.0)
        table->touched[table->n_touched++] = (int32_t)place;
    return record;
}

#endif
