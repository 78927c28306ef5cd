/* One pass over a batch, units one after another, and every accumulator for each row. */
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "workspace.h"

static int by_unit(const void *left, const void *right)
{
    const UnitRow *a = left, *b = right;
    if (a->unit_key != b->unit_key)
        return a->unit_key < b->unit_key ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* First rating of every row. */
static void find_entries(Workspace *workspace, const Batch *batch)
{
    int64_t entry = 0;
    for (int64_t row = 0; row <= batch->n; row++) {
        while (entry < batch->n_entries && batch->rating_row[entry] < row)
            entry++;
        workspace->first_entry[row] = entry;
    }
}

static void order_by_unit(Workspace *workspace, const Batch *batch)
{
    for (int64_t row = 0; row < batch->n; row++)
        workspace->order[row] = (UnitRow){batch->has_units ? batch->unit_key[row] : (uint64_t)row, row};
    if (batch->has_units)
        qsort(workspace->order, (size_t)batch->n, sizeof *workspace->order, by_unit);
}

static int is_labelled(const Workspace *workspace, int64_t row)
{
    return workspace->first_entry[row + 1] > workspace->first_entry[row];
}

/* Begin to load a record that will be added to some thousand instructions later. */
static void load_record(const Table *table, int64_t place)
{
    const char *record = (const char *)(table->records + place * table->width);
    __builtin_prefetch(record, 1);
    __builtin_prefetch(record + 64, 1);
}

/* Positions of every class's probability on the class grid. The largest tables exceed the processor's second-level cache. */
static void locate_classes(Workspace *workspace, int lane)
{
    const Model *model = &workspace->model;
    const Row *row = &workspace->tile.rows[lane];
    const Table *cells = &workspace->tables[CLASSES_CELLS], *replicates = &workspace->tables[REPLICATES_CLASSES];
    const int64_t size = n_positions(&model->class_grid);
    int32_t *position = positions_of(workspace, lane);
    for (int64_t k = 0; k < model->n_classes; k++) {
        position[k] = (int32_t)locate(&model->class_grid, row->probabilities[k], row->edge_rule);
        if (is_wanted(cells) && model->slot_of_class[k] >= 0)
            load_record(cells, model->slot_of_class[k] * size + position[k]);
        if (is_wanted(replicates))
            load_record(replicates, class_place(workspace, row, k, position));
    }
}

/* Whether any block reads the positions of every class's probability. */
static int reads_classes(const Workspace *workspace)
{
    static const int blocks[] = {CLASSES_CELLS, ALL_LABELS_CELLS, LABEL_BINS_BINS, REPLICATES_CLASSES, REPLICATES_UNIT_PRODUCTS};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (is_wanted(&workspace->tables[blocks[i]]))
            return 1;
    return 0;
}

static void fill_row(Workspace *workspace, const Batch *batch, int lane)
{
    const Row *row = &workspace->tile.rows[lane];
    const Table *tables = workspace->tables;
    const int32_t *position = positions_of(workspace, lane);
    LabelRow label = label_row(row);
    if (is_wanted(&tables[COUNTS_COUNTS]))
        fill_counts(workspace, row, (int)batch->unit_from_row);
    if (is_wanted(&tables[TOP_LABEL_CELLS]))
        fill_top_label(workspace, row);
    if (is_wanted(&tables[POSITIVE_CELLS]))
        fill_positive(workspace, row);
    if (is_wanted(&tables[CLASSES_CELLS]))
        fill_classes(workspace, row, position);
    if (is_wanted(&tables[ALL_LABELS_CELLS]))
        fill_all_labels(workspace, row, position);
    if (is_wanted(&tables[LABEL_BINS_BINS]))
        fill_label_bins(workspace, row, position);
    if (is_wanted(&tables[REPLICATES_TABLES]))
        fill_replicate_tables(workspace, row);
    if (is_wanted(&tables[REPLICATES_UNIT_PRODUCTS]))
        fill_unit_products(workspace, row, position, (int)batch->has_units);
    if (is_wanted(&tables[TEMPERATURE_UNITS]))
        count_unit_ratings(workspace, row);
    if (is_wanted(&tables[REPLICATES_CLASSES]))
        fill_replicate_classes(workspace, row, position);
    if (is_wanted(&tables[SCORES_SCORES]) || is_wanted(&tables[REPLICATES_SCORES]))
        fill_scores(workspace, row, lane);
    if (is_wanted(&tables[UNCERTAINTY_CELLS]))
        fill_uncertainty(workspace, row);
    if (is_wanted(&tables[UNITS_BINS]))
        fill_units(workspace, row, (int)batch->has_units);
    if (is_wanted(&tables[DISAGREEMENT_CELLS]))
        fill_disagreement(workspace, row, &label);
    if (is_wanted(&tables[LABEL_UNCERTAINTY_SUMS]))
        fill_label_uncertainty(workspace, row, &label);
    if (is_wanted(&tables[LABEL_DISTRIBUTION_SUMS]))
        fill_label_distribution(workspace, row);
    if (is_wanted(&tables[CONCENTRATION_PROFILE]))
        fill_concentration(workspace, row, lane);
}

static void fill_tile(Workspace *workspace, const Batch *batch)
{
    if (workspace->tile.n == 0)
        return;
    complete_tile(workspace, batch);
    for (int lane = 0; reads_classes(workspace) && lane < workspace->tile.n; lane++)
        locate_classes(workspace, lane);
    if (is_wanted(&workspace->tables[TEMPERATURE_CURVE]))
        fill_temperature(workspace, (int)batch->has_units);
    for (int lane = 0; lane < workspace->tile.n; lane++)
        fill_row(workspace, batch, lane);
    workspace->tile.n = 0;
}

/* Numbers of rows and ratings of one unit. */
typedef struct {
    double n_rows, n_labelled, n_ratings;
    int64_t last_labelled;
} Unit;

static Unit count_unit(const Workspace *workspace, const Batch *batch, const UnitRow *rows, int64_t n)
{
    Unit unit = {(double)n, 0.0, 0.0, -1};
    for (int64_t i = 0; i < n; i++) {
        if (!is_labelled(workspace, rows[i].row))
            continue;
        unit.n_labelled += 1.0;
        unit.last_labelled = i;
        for (int64_t entry = workspace->first_entry[rows[i].row]; entry < workspace->first_entry[rows[i].row + 1]; entry++)
            unit.n_ratings += (double)batch->rating_count[entry];
    }
    return unit;
}

static enum edge_rule rule_of(const Batch *batch, int64_t row)
{
    return batch->edge_rules ? (enum edge_rule)batch->edge_rules[row] : RULE_FLOAT32;
}

static Row start_row(const Workspace *workspace, const Batch *batch, const Unit *unit, int64_t index)
{
    int64_t first = workspace->first_entry[index], last = workspace->first_entry[index + 1];
    Row row = {.index = index, .n_rated = last - first, .unit_size = unit->n_labelled, .unit_ratings = unit->n_ratings};
    row.rated = batch->rating_class + first;
    row.ratings = batch->rating_count + first;
    row.probabilities = batch->probabilities + index * workspace->model.n_classes;
    row.edge_rule = rule_of(batch, index);
    row.weight = batch->weights ? batch->weights[index] : 1.0;
    for (int64_t i = 0; i < row.n_rated; i++)
        row.n_ratings += (double)row.ratings[i];
    return row;
}

static void fill_unit(Workspace *workspace, Batch *batch, const UnitRow *rows, int64_t n)
{
    Unit unit = count_unit(workspace, batch, rows, n);
    if (batch->needs_digest)
        add_unit_to_digest(workspace, batch, rows, n);
    for (int64_t i = 0; i < n; i++) {
        if (is_wanted(&workspace->tables[UNITS_BINS]))
            fill_occupancy(workspace, batch->probabilities + rows[i].row * workspace->model.n_classes, unit.n_rows, rule_of(batch, rows[i].row));
        if (!is_labelled(workspace, rows[i].row))
            continue;
        Row *row = &workspace->tile.rows[workspace->tile.n++];
        *row = start_row(workspace, batch, &unit, rows[i].row);
        row->ends_unit = i == unit.last_labelled;
        if (workspace->tile.n == LANES)
            fill_tile(workspace, batch);
    }
}

static void start_sums(Workspace *workspace)
{
    memset(&workspace->curve, 0, sizeof workspace->curve);
    memset(&workspace->profile, 0, sizeof workspace->profile);
    memset(workspace->unit_weight, 0, sizeof workspace->unit_weight);
    memset(workspace->unit_pooled, 0, sizeof workspace->unit_pooled);
    memset(&workspace->unit_ratings, 0, sizeof workspace->unit_ratings);
    workspace->tile.n = 0;
}

/* Add a batch to the scratch tables, which are zero. */
static void fill_tables(Workspace *workspace, Batch *batch)
{
    start_sums(workspace);
    find_entries(workspace, batch);
    if (batch->hashes_rows || batch->unit_from_row)
        hash_all_scores(batch->scores, batch->n, workspace->model.n_classes, workspace->score_hash);
    for (int64_t row = 0; batch->hashes_rows && row < batch->n; row++)
        batch->prediction_hash[row] = prediction_hash(workspace, batch, row);
    order_by_unit(workspace, batch);
    if (is_wanted(&workspace->tables[COUNTS_COUNTS]) && batch->n > 0)
        count_predictions(workspace, batch->n);
    batch->digest[0] = batch->digest[1] = 0;
    for (int64_t first = 0, next; first < batch->n; first = next) {
        for (next = first + 1; next < batch->n && workspace->order[next].unit_key == workspace->order[first].unit_key; next++)
            ;
        fill_unit(workspace, batch, workspace->order + first, next - first);
    }
    fill_tile(workspace, batch);
    if (is_wanted(&workspace->tables[TEMPERATURE_CURVE]))
        finish_temperature(workspace, (int)batch->has_units);
    if (is_wanted(&workspace->tables[CONCENTRATION_PROFILE]))
        finish_concentration(workspace);
}
