/* Cells of the fine grid; `calibrant/accumulators/cells.py`, with `top_label`, `positive`, `classes` and `all_labels`. */
#include "grid.h"
#include "workspace.h"

enum {
    CELL_PREDICTIONS,
    CELL_RATINGS,
    CELL_WEIGHT_POOLED,
    CELL_WEIGHT,
    CELL_CONFIDENCE_POOLED,
    CELL_CONFIDENCE,
    CELL_CORRECT, /* four policies */
    CELL_CORRECT_MEAN_SQUARED = CELL_CORRECT + N_POLICIES,
    CELL_WEIGHT_SQUARED_POOLED,
    CELL_WEIGHT_SQUARED,
    CELL_NULL_VARIANCE_POOLED,
    CELL_NULL_VARIANCE,
    N_CELL_COLUMNS
};

/* Columns of a row's scores, as constant + score * by_score + score (1 - score) * by_variance; four columns in each part. */
typedef struct {
    Lanes constant[4], by_score, by_variance;
} CellRow;

_Static_assert(CELL_CONFIDENCE_POOLED == LANES && CELL_NULL_VARIANCE_POOLED == 3 * LANES + 1, "parts of `CellRow`");

static CellRow cell_row(const Row *row)
{
    double w = row->weight, n = row->n_ratings, dependent = row->unit_size * (w * w);
    return (CellRow){
        {{1.0, n, w * n, w}, {0.0, 0.0, 0.0, 0.0}, {0.0, 0.0, 0.0, w * w * n}, {w * w, 0.0, 0.0, 0.0}},
        {w * n, w, 0.0, 0.0},
        {0.0, dependent * (n * n), dependent, 0.0},
    };
}

static void add_score(Table *table, int64_t place, const CellRow *row, double score)
{
    Lanes *record = (Lanes *)record_at(table, place);
    record[0] += row->constant[0];
    record[1] += row->by_score * splat(score);
    record[2] += row->constant[2];
    record[3] += row->constant[3] + row->by_variance * splat(score * (1.0 - score));
}

static void add_hits(Table *table, int64_t place, double weight, const Hits *hits)
{
    double *record = table->records + place * table->width;
    for (int policy = 0; policy < N_POLICIES; policy++)
        record[CELL_CORRECT + policy] += weight * hits->ratings[policy];
    record[CELL_CORRECT_MEAN_SQUARED] += weight * (hits->ratings[MEAN] * hits->ratings[MEAN]);
}

/* Cells of one score per row, on the top-label grid. */
static void fill_one_table(Workspace *workspace, Table *table, const Row *row, double score, const Hits *hits)
{
    CellRow columns = cell_row(row);
    int64_t place = locate(&workspace->model.top_grid, score, row->edge_rule);
    add_score(table, place, &columns, score);
    add_hits(table, place, row->weight, hits);
}

static void fill_top_label(Workspace *workspace, const Row *row)
{
    fill_one_table(workspace, &workspace->tables[TOP_LABEL_CELLS], row, row->confidence, &row->top_hits);
}

static void fill_positive(Workspace *workspace, const Row *row)
{
    Hits hits = {{0}};
    for (int64_t i = 0; i < row->n_rated; i++)
        if (row->rated[i] == 1)
            hits = hits_of(row, 1, (double)row->ratings[i]);
    fill_one_table(workspace, &workspace->tables[POSITIVE_CELLS], row, row->probabilities[1], &hits);
}

/* One table per listed class, one after another. */
static void fill_classes(Workspace *workspace, const Row *row, const int32_t *position)
{
    Table *table = &workspace->tables[CLASSES_CELLS];
    const Model *model = &workspace->model;
    const int64_t size = n_positions(&model->class_grid);
    CellRow columns = cell_row(row);
    for (int64_t k = 0; k < model->n_classes; k++)
        if (model->slot_of_class[k] >= 0)
            add_score(table, model->slot_of_class[k] * size + position[k], &columns, row->probabilities[k]);
    for (int64_t i = 0; i < row->n_rated; i++) {
        int64_t k = row->rated[i], slot = model->slot_of_class[k];
        Hits hits = hits_of(row, k, (double)row->ratings[i]);
        if (slot >= 0)
            add_hits(table, slot * size + position[k], row->weight, &hits);
    }
}

/* The union of all classes' tables. */
static void fill_all_labels(Workspace *workspace, const Row *row, const int32_t *position)
{
    Table *table = &workspace->tables[ALL_LABELS_CELLS];
    CellRow columns = cell_row(row);
    for (int64_t k = 0; k < workspace->model.n_classes; k++)
        add_score(table, position[k], &columns, row->probabilities[k]);
    for (int64_t i = 0; i < row->n_rated; i++) {
        Hits hits = hits_of(row, row->rated[i], (double)row->ratings[i]);
        add_hits(table, position[row->rated[i]], row->weight, &hits);
    }
}
