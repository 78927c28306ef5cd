/* Sixty-four independent parts of the data; `calibrant/accumulators/replicates.py`. */
#include "grid.h"
#include "workspace.h"

#define SCORE_BINS 60
#define CLASS_BINS 15

enum {
    TABLE_PREDICTIONS,
    TABLE_WEIGHT_POOLED,
    TABLE_WEIGHT,
    TABLE_CONFIDENCE_POOLED,
    TABLE_CONFIDENCE,
    TABLE_CORRECT, /* four policies */
    N_TABLE_COLUMNS = TABLE_CORRECT + N_POLICIES
};

static void add_table_score(Table *table, int64_t place, const Row *row, double score)
{
    double *record = record_at(table, place), pooled = row->weight * row->n_ratings;
    record[TABLE_PREDICTIONS] += 1.0;
    record[TABLE_WEIGHT_POOLED] += pooled;
    record[TABLE_WEIGHT] += row->weight;
    record[TABLE_CONFIDENCE_POOLED] += pooled * score;
    record[TABLE_CONFIDENCE] += row->weight * score;
}

static void add_table_hits(Table *table, int64_t place, const Row *row, const Hits *hits)
{
    double *record = table->records + place * table->width;
    for (int policy = 0; policy < N_POLICIES; policy++)
        record[TABLE_CORRECT + policy] += row->weight * hits->votes[policy];
}

static void fill_replicate_tables(Workspace *workspace, const Row *row)
{
    Table *table = &workspace->tables[REPLICATES_TABLES];
    int64_t place = row->replicate * SCORE_BINS + equal_width_bin(row->score, SCORE_BINS);
    add_table_score(table, place, row, row->score);
    add_table_hits(table, place, row, &row->score_hits);
}

static int64_t class_place(const Workspace *workspace, const Row *row, int64_t k, const int32_t *position)
{
    const Model *model = &workspace->model;
    int64_t bin = model->class_bin ? model->class_bin[position[k]] : equal_width_bin(row->probabilities[k], CLASS_BINS);
    return (row->replicate * model->n_classes + k) * CLASS_BINS + bin;
}

static void fill_replicate_classes(Workspace *workspace, const Row *row, const int32_t *position)
{
    Table *table = &workspace->tables[REPLICATES_CLASSES];
    for (int64_t k = 0; k < workspace->model.n_classes; k++)
        add_table_score(table, class_place(workspace, row, k, position), row, row->probabilities[k]);
    for (int64_t i = 0; i < row->n_rated; i++) {
        int64_t k = row->rated[i];
        Hits hits = hits_of(row, k, (double)row->votes[i]);
        add_table_hits(table, class_place(workspace, row, k, position), row, &hits);
    }
}
