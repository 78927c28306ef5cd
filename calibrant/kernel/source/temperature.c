/* Losses of softmax(beta z) on the grid of betas; `calibrant/accumulators/temperature.py`. */
#include "grid.h"
#include "workspace.h"

#define TABLE_BINS 60

static const int CHOICE_OF_POLICY[N_POLICIES] = {ALL_RATINGS, ALL_RATINGS, OF_MAJORITY, OF_SINGLE};

/* Weight of each row's ratings under a policy. */
static Lanes policy_weight(const Tile *tile, int policy)
{
    Lanes weight;
    for (int lane = 0; lane < LANES; lane++)
        weight[lane] = policy == MEAN ? tile->rows[lane].weight / tile->rows[lane].n_ratings : tile->rows[lane].weight;
    return weight;
}

/* Square a gradient of every policy and beta by unit: rows of a unit follow each other. */
static void add_by_unit(SquaresByUnit *squares, const Tile *tile, const Lanes gradient[N_POLICIES][N_BETAS])
{
    double *open = &squares->open[0][0], *closed = &squares->closed[0][0];
    const Lanes *gradients = &gradient[0][0];
    for (int lane = 0; lane < tile->n; lane++) {
        for (int i = 0; i < N_POLICIES * N_BETAS; i++)
            open[i] += gradients[i][lane];
        if (!tile->rows[lane].ends_unit)
            continue;
        for (int i = 0; i < N_POLICIES * N_BETAS; i++) {
            closed[i] += open[i] * open[i];
            open[i] = 0.0;
        }
    }
}

/* Mean and variance of z under softmax(beta z); the sum of p^2, and half of its first and second derivatives in beta. */
typedef struct {
    Lanes inverse, log_total, mean, variance, squares, squares_slope, squares_curvature;
} StepMoments;

static StepMoments moments_at(const Moments *moments, int step)
{
    StepMoments at;
    const int twice = step + STEPS_PER_OCTAVE; /* exp(2 beta z) is the square of exp(beta z) */
    at.inverse = splat(1.0) / moments->total[step];
    Lanes square = at.inverse * at.inverse, first = moments->first[twice] * square, second = moments->second[twice] * square;
    at.log_total = log_lanes(moments->total[step]);
    at.mean = moments->first[step] * at.inverse;
    at.variance = moments->second[step] * at.inverse - at.mean * at.mean;
    at.squares = moments->total[twice] * square;
    at.squares_slope = first - at.squares * at.mean;
    at.squares_curvature = splat(2.0) * (second - at.mean * (first + at.squares_slope)) - at.variance * at.squares;
    return at;
}

/* Weights of a tile's rows under one policy: of all ratings and of those at positive probability; and of the sum of their z. */
typedef struct {
    int choice;
    Lanes weight, all, finite, logit;
} PolicyRows;

static PolicyRows policy_rows(const Tile *tile, const Chosen *chosen, int policy)
{
    int choice = CHOICE_OF_POLICY[policy];
    Lanes weight = policy_weight(tile, policy);
    return (PolicyRows){
        choice, weight, weight * chosen->ratings[choice], weight * chosen->possible_ratings[choice], weight * chosen->logit[choice]};
}

/* Add the losses of a policy at one beta, and return the rows' derivatives of NLL and Brier score. */
static void add_losses_at(Curve *curve, double beta, const StepMoments *at, const Chosen *chosen, const PolicyRows *own, int policy, int step,
                          Lanes *nll_gradient, Lanes *brier_gradient)
{
    Lanes scale = own->weight * at->inverse, power = scale * chosen->power[own->choice][step];
    Lanes first = scale * chosen->first[own->choice][step], second = scale * chosen->second[own->choice][step];
    Lanes slope = first - power * at->mean;
    Lanes curvature = second - splat(2.0) * at->mean * first + (at->mean * at->mean - at->variance) * power;
    Lanes nll_d1 = own->finite * at->mean - own->logit;
    Lanes brier_d1 = splat(2.0) * (own->all * at->squares_slope - slope);
    curve->sums[NLL][policy][step] += own->finite * at->log_total - own->logit * splat(beta);
    curve->sums[NLL_D1][policy][step] += nll_d1;
    curve->sums[NLL_D2][policy][step] += own->finite * at->variance;
    curve->sums[NLL_D1_SQUARED][policy][step] += nll_d1 * nll_d1;
    curve->sums[BRIER][policy][step] += own->all + own->all * at->squares - splat(2.0) * power;
    curve->sums[BRIER_D1][policy][step] += brier_d1;
    curve->sums[BRIER_D2][policy][step] += splat(2.0) * (own->all * at->squares_curvature - curvature);
    curve->sums[BRIER_D1_SQUARED][policy][step] += brier_d1 * brier_d1;
    *nll_gradient = nll_d1;
    *brier_gradient = brier_d1;
}

static void add_curve(Workspace *workspace, const Moments *moments, const Chosen *chosen, int has_units)
{
    Curve *curve = &workspace->curve;
    const Tile *tile = &workspace->tile;
    PolicyRows rows[N_POLICIES];
    Lanes nll[N_POLICIES][N_BETAS], brier[N_POLICIES][N_BETAS];
    for (int policy = 0; policy < N_POLICIES; policy++) {
        rows[policy] = policy_rows(tile, chosen, policy);
        curve->sums[WEIGHT][policy][0] += rows[policy].finite;
        curve->sums[WEIGHT_ALL][policy][0] += rows[policy].all;
    }
    for (int step = 0; step < N_BETAS; step++) {
        StepMoments at = moments_at(moments, step);
        for (int policy = 0; policy < N_POLICIES; policy++)
            add_losses_at(curve, workspace->points.beta[step], &at, chosen, &rows[policy], policy, step, &nll[policy][step],
                          &brier[policy][step]);
    }
    if (has_units) {
        add_by_unit(&curve->nll_squares, tile, nll);
        add_by_unit(&curve->brier_squares, tile, brier);
    }
}

static void count_rows(Curve *curve, const Tile *tile, const Chosen *chosen)
{
    curve->predictions += (double)tile->n;
    for (int policy = 0; policy < N_POLICIES; policy++) {
        int choice = CHOICE_OF_POLICY[policy];
        Lanes impossible = chosen->ratings[choice] - chosen->possible_ratings[choice];
        for (int lane = 0; lane < tile->n; lane++)
            curve->n_impossible[policy] += impossible[lane];
    }
}

/* Score of each row at every beta: as it was sent at beta 1, else class 1 of binary models or the likeliest class. */
static void temper_scores(const Workspace *workspace, const Moments *moments, Lanes score[N_BETAS])
{
    const Tile *tile = &workspace->tile;
    for (int start = 0; start < STEPS_PER_OCTAVE; start++) {
        Lanes power = workspace->model.is_binary ? workspace->powers[start * workspace->model.n_classes + 1] : splat(1.0);
        for (int step = start; step < N_BETAS; step += STEPS_PER_OCTAVE) {
            score[step] = power / moments->total[step];
            power *= power;
        }
    }
    for (int lane = 0; lane < LANES; lane++)
        score[N_BETAS / 2][lane] = tile->rows[lane].score;
    for (int step = 0; step < N_BETAS; step++)
        score[step] = select_lanes(score[step] < splat(1.0), score[step], splat(1.0));
}

/* Columns of the tables: predictions, then `TABLE_SUMS` of `calibrant/accumulators/replicates.py`. */
static void add_tables(Workspace *workspace, const Lanes score[N_BETAS])
{
    Table *table = &workspace->tables[TEMPERATURE_TABLES];
    for (int64_t lane = 0; lane < workspace->tile.n; lane++) {
        const Row *row = &workspace->tile.rows[lane];
        const double w = row->weight, pooled = w * row->n_ratings, *ratings = row->score_hits.ratings;
        const Lanes sums[] = {{1.0, pooled, w, 0.0}, {0.0, w * ratings[POOLED], w * ratings[MEAN], w * ratings[MAJORITY]}};
        const Lanes by_score[] = {{0.0, 0.0, 0.0, pooled}, {w, 0.0, 0.0, 0.0}};
        for (int step = 0; step < N_BETAS; step++) {
            double own = score[step][lane];
            int64_t bin = step == N_BETAS / 2 ? equal_width_bin(own, TABLE_BINS, row->edge_rule) : derived_bin(own, TABLE_BINS);
            double *record = record_at(table, step * TABLE_BINS + bin);
            Lanes *parts = (Lanes *)record;
            parts[0] += sums[0] + by_score[0] * splat(own);
            parts[1] += sums[1] + by_score[1] * splat(own);
            record[2 * LANES] += w * ratings[SINGLE];
        }
    }
}

static void fill_temperature(Workspace *workspace, int has_units)
{
    Moments moments;
    Chosen chosen;
    Lanes score[N_BETAS];
    memset(&chosen, 0, sizeof chosen);
    take_powers(workspace);
    sum_moments(workspace, &moments);
    choose_ratings(workspace, &chosen);
    add_curve(workspace, &moments, &chosen, has_units);
    count_rows(&workspace->curve, &workspace->tile, &chosen);
    temper_scores(workspace, &moments, score);
    add_tables(workspace, score);
}

/* Units with a row of positive weight, and those with a correct and with an incorrect rating; `_count_units` in numpy. */
static void count_unit_ratings(Workspace *workspace, const Row *row)
{
    UnitRatings *open = &workspace->unit_ratings;
    if (row->weight > 0.0) {
        int majority = row->majority == row->top_class, single = row->single == row->top_class;
        int some = row->top_hits.ratings[POOLED] > 0.0, others = row->top_hits.ratings[POOLED] < row->n_ratings;
        const int correct[N_POLICIES] = {some, some, majority, single}, incorrect[N_POLICIES] = {others, others, !majority, !single};
        open->has_weight = 1;
        for (int policy = 0; policy < N_POLICIES; policy++) {
            open->has_correct[policy] |= correct[policy];
            open->has_incorrect[policy] |= incorrect[policy];
        }
    }
    for (int policy = 0; policy < N_POLICIES; policy++) {
        double *record = record_at(&workspace->tables[TEMPERATURE_UNITS], policy);
        record[0] += 1.0;
        record[1] += row->ends_unit && open->has_weight;
        record[2] += row->ends_unit && open->has_correct[policy];
        record[3] += row->ends_unit && open->has_incorrect[policy];
    }
    if (row->ends_unit)
        *open = (UnitRatings){0};
}

static double curve_sum(const Curve *curve, int column, int policy, int step, int has_units)
{
    if (has_units && column == NLL_D1_SQUARED)
        return curve->nll_squares.closed[policy][step];
    if (has_units && column == BRIER_D1_SQUARED)
        return curve->brier_squares.closed[policy][step];
    int is_constant = column == WEIGHT || column == WEIGHT_ALL;
    return sum_of_lanes(curve->sums[column][policy][is_constant ? 0 : step]);
}

/* Write the sums of the fill to the scratch tables: predictions, ratings at probability 0, then the sums in their order. */
static void finish_temperature(Workspace *workspace, int has_units)
{
    const Curve *curve = &workspace->curve;
    for (int place = 0; place < N_POLICIES * N_BETAS && curve->predictions > 0.0; place++) {
        int policy = place / N_BETAS, step = place % N_BETAS;
        double *record = record_at(&workspace->tables[TEMPERATURE_CURVE], place);
        double *curvature = record_at(&workspace->tables[TEMPERATURE_CURVATURE], place);
        record[0] = curvature[0] = curve->predictions;
        record[1] = curve->n_impossible[policy];
        for (int column = 0; column < N_CURVE_SUMS; column++)
            record[2 + column] = curve_sum(curve, column, policy, step, has_units);
        curvature[1] = curve_sum(curve, BRIER_D2, policy, step, has_units);
        curvature[2] = curve_sum(curve, BRIER_D1_SQUARED, policy, step, has_units);
    }
}
