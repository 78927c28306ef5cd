/* Losses of softmax(beta z) on the grid of betas; `calibrant/accumulators/temperature.py` and `tempering.py`. */
#include "exponential.h"
#include "grid.h"
#include "workspace.h"

#define TABLE_BINS 60

/* Sums over classes at every beta of exp(beta z), of it times z, and of it times z^2. */
typedef struct {
    Lanes total[N_POWERS], first[N_POWERS], second[N_BETAS];
} Moments;

/* Sums over a row's ratings of exp(beta z), and of it times z, at every beta; each for all ratings, majority and single. */
enum { ALL_RATINGS, OF_MAJORITY, OF_SINGLE, N_CHOICES };
typedef struct {
    Lanes votes[N_CHOICES], possible_votes[N_CHOICES], zed[N_CHOICES];
    Lanes power[N_CHOICES][N_BETAS], slope[N_CHOICES][N_BETAS];
} Chosen;

static const int CHOICE_OF_POLICY[N_POLICIES] = {ALL_RATINGS, ALL_RATINGS, OF_MAJORITY, OF_SINGLE};

static double beta(int step)
{
    static const double octave[STEPS_PER_OCTAVE] = {1.0, 0x1.6a09e667f3bcdp+0}; /* 1, sqrt(2) */
    return ldexp(octave[step % STEPS_PER_OCTAVE], step / STEPS_PER_OCTAVE - 5);
}

/* exp(beta z) of every class at the first betas; further ones follow by squaring. */
static void take_powers(Workspace *workspace)
{
    const Tile *tile = &workspace->tile;
    const int64_t n_classes = workspace->model.n_classes;
    for (int step = 0; step < STEPS_PER_OCTAVE; step++)
        for (int64_t k = 0; k < n_classes; k++)
            workspace->powers[step * n_classes + k] =
                select_lanes(tile->is_possible[k], exp_lanes(splat(beta(step)) * tile->zed[k]), splat(0.0));
}

static void sum_moments(const Workspace *workspace, Moments *moments)
{
    const int64_t n_classes = workspace->model.n_classes;
    for (int step = 0; step < N_POWERS; step++)
        moments->total[step] = moments->first[step] = splat(0.0);
    for (int step = 0; step < N_BETAS; step++)
        moments->second[step] = splat(0.0);
    for (int start = 0; start < STEPS_PER_OCTAVE; start++) {
        for (int64_t k = 0; k < n_classes; k++) {
            Lanes power = workspace->powers[start * n_classes + k], zed = workspace->tile.zed[k];
            for (int step = start; step < N_POWERS; step += STEPS_PER_OCTAVE) {
                Lanes weighted = power * zed;
                moments->total[step] += power;
                moments->first[step] += weighted;
                if (step < N_BETAS)
                    moments->second[step] += weighted * zed;
                power *= power;
            }
        }
    }
}

/* Add a rating of one class per row, with these numbers of ratings. */
static void choose(const Workspace *workspace, Chosen *chosen, int choice, const int64_t *class_index, Lanes votes)
{
    const Tile *tile = &workspace->tile;
    const int64_t n_classes = workspace->model.n_classes;
    Lanes zed, possible;
    for (int lane = 0; lane < LANES; lane++) {
        zed[lane] = tile->zed[class_index[lane]][lane];
        possible[lane] = tile->is_possible[class_index[lane]][lane] ? votes[lane] : 0.0;
    }
    chosen->votes[choice] += votes;
    chosen->possible_votes[choice] += possible;
    chosen->zed[choice] += votes * zed;
    for (int start = 0; start < STEPS_PER_OCTAVE; start++) {
        Lanes power;
        for (int lane = 0; lane < LANES; lane++)
            power[lane] = workspace->powers[start * n_classes + class_index[lane]][lane];
        for (int step = start; step < N_BETAS; step += STEPS_PER_OCTAVE) {
            Lanes weighted = votes * power;
            chosen->power[choice][step] += weighted;
            chosen->slope[choice][step] += weighted * zed;
            power *= power;
        }
    }
}

static void choose_ratings(const Workspace *workspace, Chosen *chosen)
{
    const Row *rows = workspace->tile.rows;
    int64_t majority[LANES], single[LANES], rated[LANES], most = 0;
    for (int lane = 0; lane < LANES; lane++) {
        majority[lane] = rows[lane].majority;
        single[lane] = rows[lane].single;
        most = rows[lane].n_rated > most ? rows[lane].n_rated : most;
    }
    for (int64_t i = 0; i < most; i++) {
        Lanes votes;
        for (int lane = 0; lane < LANES; lane++) {
            int is_rated = i < rows[lane].n_rated;
            rated[lane] = is_rated ? rows[lane].rated[i] : 0;
            votes[lane] = is_rated ? (double)rows[lane].votes[i] : 0.0;
        }
        choose(workspace, chosen, ALL_RATINGS, rated, votes);
    }
    choose(workspace, chosen, OF_MAJORITY, majority, splat(1.0));
    choose(workspace, chosen, OF_SINGLE, single, splat(1.0));
}

/* Weight of each row's ratings under a policy. */
static Lanes policy_weight(const Tile *tile, int policy)
{
    Lanes weight;
    for (int lane = 0; lane < LANES; lane++)
        weight[lane] = policy == MEAN ? tile->rows[lane].weight / tile->rows[lane].n_ratings : tile->rows[lane].weight;
    return weight;
}

/* Add the squared gradient by unit: rows of a unit follow each other. */
static void add_gradients(Curve *curve, const Tile *tile, Lanes gradient[N_POLICIES][N_BETAS])
{
    double *open = &curve->unit_gradient[0][0], *closed = &curve->unit_squared[0][0];
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

static void add_curve(Workspace *workspace, const Moments *moments, const Chosen *chosen, int has_units)
{
    Curve *curve = &workspace->curve;
    const Tile *tile = &workspace->tile;
    Lanes weight[N_POLICIES], finite[N_POLICIES], all[N_POLICIES], zed[N_POLICIES], gradient[N_POLICIES][N_BETAS];
    for (int policy = 0; policy < N_POLICIES; policy++) {
        int choice = CHOICE_OF_POLICY[policy];
        weight[policy] = policy_weight(tile, policy);
        finite[policy] = weight[policy] * chosen->possible_votes[choice];
        all[policy] = weight[policy] * chosen->votes[choice];
        zed[policy] = weight[policy] * chosen->zed[choice];
    }
    for (int step = 0; step < N_BETAS; step++) {
        Lanes inverse = splat(1.0) / moments->total[step], square = inverse * inverse;
        Lanes mean = moments->first[step] * inverse, mean_square = moments->second[step] * inverse;
        Lanes squares = moments->total[step + STEPS_PER_OCTAVE] * square;
        Lanes change = moments->first[step + STEPS_PER_OCTAVE] * square - squares * mean;
        Lanes log_total = log_lanes(moments->total[step]), variance = mean_square - mean * mean;
        for (int policy = 0; policy < N_POLICIES; policy++) {
            int choice = CHOICE_OF_POLICY[policy];
            Lanes power = weight[policy] * (chosen->power[choice][step] * inverse);
            Lanes slope = weight[policy] * (chosen->slope[choice][step] * inverse) - power * mean;
            Lanes own = finite[policy] * mean - zed[policy];
            curve->sums[NLL][policy][step] += finite[policy] * log_total - zed[policy] * splat(beta(step));
            curve->sums[NLL_D1][policy][step] += own;
            curve->sums[NLL_D2][policy][step] += finite[policy] * variance;
            curve->sums[BRIER][policy][step] += all[policy] + all[policy] * squares - splat(2.0) * power;
            curve->sums[BRIER_D1][policy][step] += splat(2.0) * (all[policy] * change - slope);
            curve->sums[NLL_D1_SQUARED][policy][step] += own * own;
            gradient[policy][step] = own;
        }
    }
    for (int policy = 0; policy < N_POLICIES; policy++) {
        curve->sums[WEIGHT][policy][0] += finite[policy];
        curve->sums[WEIGHT_ALL][policy][0] += all[policy];
    }
    if (has_units)
        add_gradients(curve, tile, gradient);
}

static void count_rows(Curve *curve, const Tile *tile, const Chosen *chosen)
{
    curve->predictions += (double)tile->n;
    for (int policy = 0; policy < N_POLICIES; policy++) {
        int choice = CHOICE_OF_POLICY[policy];
        Lanes impossible = chosen->votes[choice] - chosen->possible_votes[choice];
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
        const double w = row->weight, pooled = w * row->n_ratings, *votes = row->score_hits.votes;
        const Lanes sums[] = {{1.0, pooled, w, 0.0}, {0.0, w * votes[POOLED], w * votes[MEAN], w * votes[MAJORITY]}};
        const Lanes by_score[] = {{0.0, 0.0, 0.0, pooled}, {w, 0.0, 0.0, 0.0}};
        for (int step = 0; step < N_BETAS; step++) {
            double own = score[step][lane];
            int64_t bin = step == N_BETAS / 2 ? equal_width_bin(own, TABLE_BINS) : derived_bin(own, TABLE_BINS);
            double *record = record_at(table, step * TABLE_BINS + bin);
            Lanes *parts = (Lanes *)record;
            parts[0] += sums[0] + by_score[0] * splat(own);
            parts[1] += sums[1] + by_score[1] * splat(own);
            record[2 * LANES] += w * votes[SINGLE];
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

/* Write the sums of the fill to the scratch table: predictions, ratings at probability 0, then the curve's sums. */
static void finish_temperature(Workspace *workspace, int has_units)
{
    Curve *curve = &workspace->curve;
    for (int policy = 0; policy < N_POLICIES && curve->predictions > 0.0; policy++) {
        for (int step = 0; step < N_BETAS; step++) {
            double *record = record_at(&workspace->tables[TEMPERATURE_CURVE], policy * N_BETAS + step);
            record[0] = curve->predictions;
            record[1] = curve->n_impossible[policy];
            for (int column = 0; column < N_CURVE_SUMS; column++) {
                int is_constant = column == WEIGHT || column == WEIGHT_ALL;
                record[2 + column] = sum_of_lanes(curve->sums[column][policy][is_constant ? 0 : step]);
            }
            if (has_units)
                record[2 + NLL_D1_SQUARED] = curve->unit_squared[policy][step];
        }
    }
}
