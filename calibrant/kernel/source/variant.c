/*
 * All computing code as one unit. It is compiled once for every variant of the processor, with `VARIANT` as the suffix of its
 * only name, so that the compiler sees, and may inline, all of it.
 */
#include "rows.c"

#include "cells.c"
#include "concentration.c"
#include "content_digest.c"
#include "counts.c"
#include "label_bins.c"
#include "label_distribution.c"
#include "label_rows.c"
#include "replicates.c"
#include "scores.c"
#include "single_labels.c"
#include "softmax_moments.c"
#include "temperature.c"
#include "tempered.c"
#include "uncertainty.c"
#include "units.c"

#include "fill.c"

#define JOIN(name, suffix) name##suffix
#define NAMED(name, suffix) JOIN(name, suffix)

void NAMED(kernel_fill_, VARIANT)(Workspace *workspace, Batch *batch)
{
    fill_tables(workspace, batch);
}

int NAMED(kernel_single_labels_, VARIANT)(const SingleLabels *rows, void *scratch)
{
    return add_single_labels(rows, scratch);
}

/* Compute the constants of a new workspace. */
void NAMED(kernel_prepare_, VARIANT)(Workspace *workspace)
{
    make_keys(workspace->word_keys[0], workspace->word_keys[1], workspace->model.n_classes);
    make_betas(&workspace->points);
    make_concentrations(&workspace->points);
}

/* Count the slots of rows, write their tiles, or do a pass; `calibrant_kernel_tempered`. */
int64_t NAMED(kernel_tempered_, VARIANT)(TemperedRows *rows, const TemperedPass *pass)
{
    if (pass)
        return pass_tempered(rows, pass);
    if (rows->tiles)
        return fill_tempered(rows);
    count_slots(rows);
    return 0;
}

int64_t NAMED(kernel_tempered_tables_, VARIANT)(TemperedRows *rows, const TemperedTables *asked)
{
    return tables_of_tempered(rows, asked);
}

/* Exponentials and logarithms of a whole number of lanes, for the test of their errors. */
void NAMED(kernel_numbers_, VARIANT)(const double *x, double *exponentials, double *logarithms, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        Lanes lanes = {x[i], x[i + 1], x[i + 2], x[i + 3]}, exponential = exp_lanes(-lanes), logarithm = log_positive(lanes);
        memcpy(exponentials + i, &exponential, sizeof exponential);
        memcpy(logarithms + i, &logarithm, sizeof logarithm);
    }
}
