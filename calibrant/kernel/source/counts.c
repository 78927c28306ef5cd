/* Plain counts; `calibrant/accumulators/counts.py`. */
#include "workspace.h"

enum {
    COUNT_PREDICTIONS,
    COUNT_LABELLED,
    COUNT_RATINGS,
    COUNT_UNITS,
    COUNT_MAJORITY_TIES,
    COUNT_UNIT_FROM_ROW,
    COUNT_ONE_RATING,
    COUNT_WEIGHT,
    N_COUNT_COLUMNS
};

/* Add every row of the batch, labelled or not. */
static void count_predictions(Workspace *workspace, int64_t n)
{
    record_at(&workspace->tables[COUNTS_COUNTS], 0)[COUNT_PREDICTIONS] += (double)n;
}

/* Add a labelled row. */
static void fill_counts(Workspace *workspace, const Row *row, int unit_from_row)
{
    double *record = workspace->tables[COUNTS_COUNTS].records;
    record[COUNT_LABELLED] += 1.0;
    record[COUNT_RATINGS] += row->n_ratings;
    record[COUNT_UNITS] += row->ends_unit;
    record[COUNT_MAJORITY_TIES] += row->is_tied;
    record[COUNT_UNIT_FROM_ROW] += unit_from_row;
    record[COUNT_ONE_RATING] += row->n_ratings == 1.0;
    record[COUNT_WEIGHT] += row->weight;
}
