/* Sixty-four independent parts of the data; `calibrant/accumulators/replicates.py`. */
#include "grid.h"
#include "workspace.h"

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
        record[TABLE_CORRECT + policy] += row->weight * hits->ratings[policy];
}

static void fill_replicate_tables(Workspace *workspace, const Row *row)
{
    Table *table = &workspace->tables[REPLICATES_TABLES];
    int64_t place = row->replicate * SCORE_BINS + equal_width_bin(row->score, SCORE_BINS, row->edge_rule);
    add_table_score(table, place, row, row->score);
    add_table_hits(table, place, row, &row->score_hits);
}

static int64_t class_place(const Workspace *workspace, const Row *row, int64_t k, const int32_t *position)
{
    const Model *model = &workspace->model;
    int64_t bin = model->class_bin ? model->class_bin[position[k]] : equal_width_bin(row->probabilities[k], CLASS_BINS, row->edge_rule);
    return (row->replicate * model->n_classes + k) * CLASS_BINS + bin;
}

static void fill_replicate_classes(Workspace *workspace, const Row *row, const int32_t *position)
{
    Table *table = &workspace->tables[REPLICATES_CLASSES];
    for (int64_t k = 0; k < workspace->model.n_classes; k++)
        add_table_score(table, class_place(workspace, row, k, position), row, row->probabilities[k]);
    for (int64_t i = 0; i < row->n_rated; i++) {
        int64_t k = row->rated[i];
        Hits hits = hits_of(row, k, (double)row->ratings[i]);
        add_table_hits(table, class_place(workspace, row, k, position), row, &hits);
    }
}

/* Add a complete unit's products of weights in every pair of bins, and zero its bins. */
static void close_products(Table *table, int64_t start, UnitBin *bins, int n_bins)
{
    for (int first = 0; first < n_bins; first++) {
        if (bins[first].n_rows == 0.0)
            continue;
        for (int second = first; second < n_bins; second++) {
            if (bins[second].n_rows == 0.0)
                continue;
            double *record = record_at(table, start + first * n_bins - first * (first - 1) / 2 + second - first);
            record[0] += 1.0;
            record[1] += first == second ? bins[first].n_rows : 0.0;
            record[2] += bins[first].pooled * bins[second].pooled;
            record[3] += bins[first].plain * bins[second].plain;
        }
        bins[first] = (UnitBin){0.0, 0.0, 0.0};
    }
}

static void add_to_unit_bin(UnitBin *bin, const Row *row)
{
    bin->n_rows += 1.0;
    bin->pooled += row->weight * row->n_ratings;
    bin->plain += row->weight;
}

/* A row that is its own unit. */
static void add_square(Table *table, int64_t start, int64_t bin, int n_bins, const Row *row)
{
    double *record = record_at(table, start + bin * n_bins - bin * (bin - 1) / 2), pooled = row->weight * row->n_ratings;
    record[0] += 1.0;
    record[1] += 1.0;
    record[2] += pooled * pooled;
    record[3] += row->weight * row->weight;
}

static void fill_unit_products(Workspace *workspace, const Row *row, const int32_t *position, int has_units)
{
    const int n_pairs = CLASS_BINS * (CLASS_BINS + 1) / 2;
    Table *scores = &workspace->tables[REPLICATES_UNIT_PRODUCTS], *classes = &workspace->tables[REPLICATES_CLASS_UNIT_PRODUCTS];
    int64_t n_classes = is_wanted(classes) ? workspace->model.n_classes : 0, bin = equal_width_bin(row->score, SCORE_BINS, row->edge_rule);
    if (has_units)
        add_to_unit_bin(&workspace->unit_bins[bin], row);
    else
        add_square(scores, 0, bin, SCORE_BINS, row);
    for (int64_t k = 0; k < n_classes; k++) {
        bin = class_place(workspace, row, k, position) % CLASS_BINS;
        if (has_units)
            add_to_unit_bin(&workspace->unit_bins[SCORE_BINS + k * CLASS_BINS + bin], row);
        else
            add_square(classes, k * n_pairs, bin, CLASS_BINS, row);
    }
    if (!has_units || !row->ends_unit)
        return;
    close_products(scores, 0, workspace->unit_bins, SCORE_BINS);
    for (int64_t k = 0; k < n_classes; k++)
        close_products(classes, k * n_pairs, workspace->unit_bins + SCORE_BINS + k * CLASS_BINS, CLASS_BINS);
}
