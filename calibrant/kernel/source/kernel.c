/* The C interface that `calibrant/kernel/library.py` calls: workspaces, fills and flushes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hashing.h"
#include "isotonic.c"
#include "json_columns.c"
#include "json_lines.c"
#include "tempered.h"
#include "workspace.h"

#define ALIGNMENT 64
#define N_HEAD_WORDS 5

#define DECLARE_VARIANT(variant)                                                                    \
    void kernel_fill_##variant(Workspace *workspace, Batch *batch);                                 \
    void kernel_prepare_##variant(Workspace *workspace);                                            \
    int kernel_single_labels_##variant(const SingleLabels *rows, void *scratch);                    \
    int64_t kernel_tempered_##variant(TemperedRows *rows, const TemperedPass *pass);                \
    int64_t kernel_tempered_tables_##variant(TemperedRows *rows, const TemperedTables *asked);      \
    void kernel_numbers_##variant(const double *x, double *exponentials, double *logarithms, int64_t n)

DECLARE_VARIANT(baseline);

#if defined(__x86_64__)
#include <cpuid.h>
DECLARE_VARIANT(avx2);

/* Whether the processor has AVX2 and the system saves its registers. `__builtin_cpu_supports` is not in every compiler's runtime. */
static int has_avx2(void)
{
    unsigned a, b, c, d, saved, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
        return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    const unsigned both_register_halves = 6;
    return (saved & both_register_halves) == both_register_halves && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
#else
#define kernel_fill_avx2 kernel_fill_baseline
#define kernel_single_labels_avx2 kernel_single_labels_baseline
#define kernel_numbers_avx2 kernel_numbers_baseline
#define kernel_tempered_avx2 kernel_tempered_baseline
#define kernel_tempered_tables_avx2 kernel_tempered_tables_baseline
static int has_avx2(void)
{
    return 0;
}
#endif

static int uses_avx2 = -1; /* -1: as the processor has it */

EXPORTED int64_t calibrant_kernel_abi(void)
{
    return KERNEL_ABI;
}

/* Whether fills use AVX2; 0 or 1 chooses it where the processor has it, and any other number leaves the choice to the processor. */
EXPORTED int64_t calibrant_kernel_avx2(int64_t choice)
{
    uses_avx2 = has_avx2() && choice != 0;
    return uses_avx2;
}

/* Aligned memory of zeros. Its pages are taken when they are first written to: a fill of few rows uses few of them. */
static void *zeroed(size_t n, size_t size)
{
    char *memory = calloc(n * size + sizeof memory + ALIGNMENT, 1);
    if (!memory)
        return NULL;
    uintptr_t after_address = (uintptr_t)(memory + sizeof memory);
    char *aligned = memory + sizeof memory + (ALIGNMENT - after_address % ALIGNMENT) % ALIGNMENT;
    memcpy(aligned - sizeof memory, &memory, sizeof memory);
    return aligned;
}

/* Free what `zeroed` returned. */
static void release(void *aligned)
{
    char *memory;
    if (!aligned)
        return;
    memcpy(&memory, (char *)aligned - sizeof memory, sizeof memory);
    free(memory);
}

EXPORTED void calibrant_kernel_free(Workspace *workspace)
{
    if (!workspace)
        return;
    for (int block = 0; block < N_BLOCKS; block++) {
        release(workspace->tables[block].records);
        release(workspace->tables[block].touched);
    }
    release(workspace->tile.probability);
    release(workspace->tile.logit);
    release(workspace->tile.is_possible);
    release(workspace->tile.log_probability);
    release(workspace->powers);
    release(workspace->rated);
    release(workspace->share);
    release(workspace->position);
    release(workspace->unit_bins);
    release(workspace->word_keys[0]);
    release(workspace->word_keys[1]);
    free(workspace->score_hash);
    free(workspace->first_entry);
    free(workspace->order);
    free(workspace->row_digest[0]);
    free(workspace->row_digest[1]);
    release(workspace);
}

static int make_tables(Workspace *workspace, const Shape *shapes)
{
    for (int block = 0; block < N_BLOCKS; block++) {
        Table *table = &workspace->tables[block];
        int64_t columns = shapes[block].n_counts + shapes[block].n_sums;
        *table = (Table){.size = shapes[block].size, .n_counts = shapes[block].n_counts, .n_sums = shapes[block].n_sums};
        table->width = (columns + LANES - 1) / LANES * LANES;
        if (table->size == 0)
            continue;
        table->records = zeroed((size_t)(table->size * table->width), sizeof *table->records);
        table->touched = zeroed((size_t)table->size, sizeof *table->touched);
        if (!table->records || !table->touched)
            return 0;
    }
    return 1;
}

static int make_class_arrays(Workspace *workspace)
{
    const size_t n = (size_t)workspace->model.n_classes;
    Tile *tile = &workspace->tile;
    tile->probability = zeroed(n, sizeof *tile->probability);
    tile->logit = zeroed(n, sizeof *tile->logit);
    tile->is_possible = zeroed(n, sizeof *tile->is_possible);
    tile->log_probability = zeroed(n, sizeof *tile->log_probability);
    workspace->powers = zeroed(STEPS_PER_OCTAVE * n, sizeof *workspace->powers);
    workspace->rated = zeroed(n, sizeof *workspace->rated);
    workspace->share = zeroed(n, sizeof *workspace->share);
    workspace->position = zeroed(LANES * n, sizeof *workspace->position);
    workspace->unit_bins = zeroed(SCORE_BINS + CLASS_BINS * n, sizeof *workspace->unit_bins);
    for (int lane = 0; lane < 2; lane++)
        workspace->word_keys[lane] = zeroed(N_HEAD_WORDS + 2 * n, sizeof **workspace->word_keys);
    if (!tile->probability || !tile->logit || !tile->is_possible || !tile->log_probability || !workspace->powers)
        return 0;
    if (!workspace->rated || !workspace->share || !workspace->position || !workspace->unit_bins || !workspace->word_keys[0] || !workspace->word_keys[1])
        return 0;
    kernel_prepare_baseline(workspace);
    return 1;
}

/* Scratch memory for panes of one specification, or NULL without memory. */
EXPORTED Workspace *calibrant_kernel_new(const Model *model, const Shape *shapes)
{
    Workspace *workspace = zeroed(1, sizeof *workspace);
    if (!workspace)
        return NULL;
    workspace->model = *model;
    if (make_tables(workspace, shapes) && make_class_arrays(workspace))
        return workspace;
    calibrant_kernel_free(workspace);
    return NULL;
}

static int make_room(Workspace *workspace, int64_t n)
{
    if (n <= workspace->capacity)
        return 1;
    const size_t rows = (size_t)n;
    workspace->capacity = 0;
    free(workspace->score_hash);
    workspace->score_hash = malloc(rows * sizeof *workspace->score_hash);
    free(workspace->first_entry);
    free(workspace->order);
    free(workspace->row_digest[0]);
    free(workspace->row_digest[1]);
    workspace->first_entry = malloc((rows + 1) * sizeof *workspace->first_entry);
    workspace->order = malloc(rows * sizeof *workspace->order);
    workspace->row_digest[0] = malloc(rows * sizeof **workspace->row_digest);
    workspace->row_digest[1] = malloc(rows * sizeof **workspace->row_digest);
    if (!workspace->score_hash || !workspace->first_entry || !workspace->order || !workspace->row_digest[0] || !workspace->row_digest[1])
        return 0;
    workspace->capacity = n;
    return 1;
}

/* Add a batch to the scratch tables and write how many cells of each block were touched. Returns 0, or 1 without memory. */
EXPORTED int64_t calibrant_kernel_fill(Workspace *workspace, Batch *batch, int64_t *n_touched)
{
    if (!make_room(workspace, batch->n))
        return 1;
    if (uses_avx2 > 0)
        kernel_fill_avx2(workspace, batch);
    else
        kernel_fill_baseline(workspace, batch);
    for (int block = 0; block < N_BLOCKS; block++)
        n_touched[block] = workspace->tables[block].n_touched;
    return 0;
}

/* Add rows with one label each; 0 if all are valid, 1 if one is not, 2 without memory. What was added is of use only with 0. */
EXPORTED int64_t calibrant_kernel_single_labels(const SingleLabels *rows)
{
    void *scratch = zeroed((size_t)rows->n_classes, 8 * (sizeof(double) + 2 * sizeof(double *))); /* of eight rows */
    if (!scratch)
        return 2;
    int is_valid = uses_avx2 > 0 ? kernel_single_labels_avx2(rows, scratch) : kernel_single_labels_baseline(rows, scratch);
    release(scratch);
    return !is_valid;
}

static int by_place(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* List the touched cells in increasing order: by a sweep where they are many. */
static void sort_touched(Table *table)
{
    if (16 * table->n_touched < table->size) {
        qsort(table->touched, (size_t)table->n_touched, sizeof *table->touched, by_place);
        return;
    }
    table->n_touched = 0;
    for (int64_t place = 0; place < table->size; place++)
        if (table->records[place * table->width] != 0.0)
            table->touched[table->n_touched++] = (int32_t)place;
}

static void flush_table(Table *table, const Destination *to)
{
    if (to->places)
        sort_touched(table);
    for (int64_t i = 0; i < table->n_touched; i++) {
        int64_t place = table->touched[i], at = to->places ? i : place;
        double *record = table->records + place * table->width;
        if (to->places)
            to->places[i] = place;
        for (int64_t column = 0; column < table->n_counts; column++)
            to->counts[column * to->stride + at] += (int64_t)record[column];
        for (int64_t column = 0; column < table->n_sums; column++)
            to->sums[column * to->stride + at] += record[table->n_counts + column];
        memset(record, 0, (size_t)table->width * sizeof *record);
    }
    table->n_touched = 0;
}

/* Add the touched cells to their destinations, one per block, and clear them. */
EXPORTED void calibrant_kernel_flush(Workspace *workspace, const Destination *destinations)
{
    for (int block = 0; block < N_BLOCKS; block++)
        if (workspace->tables[block].n_touched > 0)
            flush_table(&workspace->tables[block], &destinations[block]);
}

/* Exponentials of minus x and logarithms of x, whose number is a multiple of the lanes; for tests. */
EXPORTED void calibrant_kernel_numbers(const double *x, double *exponentials, double *logarithms, int64_t n)
{
    if (uses_avx2 > 0)
        kernel_numbers_avx2(x, exponentials, logarithms, n);
    else
        kernel_numbers_baseline(x, exponentials, logarithms, n);
}

/* Write the gain of isotonic recalibration of each row of rates. Returns 0, or 1 without memory. */
EXPORTED int64_t calibrant_kernel_gains(const Gains *rows, double *gain)
{
    Pool *pools = malloc((size_t)rows->n * sizeof *pools);
    if (!pools)
        return 1;
    isotonic_gains(rows, gain, pools);
    free(pools);
    return 0;
}

/* Count the slots of rows (without a pass and tiles), write their tiles (without a pass), or do a pass. Returns 0, or 1 without memory. */
EXPORTED int64_t calibrant_kernel_tempered(TemperedRows *rows, const TemperedPass *pass)
{
    return uses_avx2 > 0 ? kernel_tempered_avx2(rows, pass) : kernel_tempered_baseline(rows, pass);
}

/* Write tables at many betas. Returns 0, or 1 without memory. */
EXPORTED int64_t calibrant_kernel_tempered_tables(TemperedRows *rows, const TemperedTables *asked)
{
    return uses_avx2 > 0 ? kernel_tempered_tables_avx2(rows, asked) : kernel_tempered_tables_baseline(rows, asked);
}

/* Write the error function of n numbers. */
EXPORTED void calibrant_kernel_erf(const double *values, int64_t n, double *found)
{
    for (int64_t i = 0; i < n; i++)
        found[i] = erf(values[i]);
}

/* Write the hash of each of n rows of numbers. */
EXPORTED void calibrant_kernel_hash_rows(const double *values, int64_t n, int64_t n_columns, uint64_t *hashes)
{
    hash_all_scores(values, n, n_columns, hashes);
}
