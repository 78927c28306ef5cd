/* Moments of softmax(beta z) of four rows at every beta of the grid; `calibrant/accumulators/temperature_losses.py`. */
#include "exponential.h"
#include "workspace.h"

/* Sums over classes at every beta of exp(beta z), of it times z, and of it times z^2. */
typedef struct {
    Lanes total[N_POWERS], first[N_POWERS], second[N_POWERS];
} Moments;

/* Sums over a row's ratings of exp(beta z), of it times z and times z^2, at every beta; each for all ratings, majority and single. */
enum { ALL_RATINGS, OF_MAJORITY, OF_SINGLE, N_CHOICES };
typedef struct {
    Lanes ratings[N_CHOICES], possible_ratings[N_CHOICES], logit[N_CHOICES];
    Lanes power[N_CHOICES][N_BETAS], first[N_CHOICES][N_BETAS], second[N_CHOICES][N_BETAS];
} Chosen;

/* Betas 2^-5, 2^-4.5, ..., 2^5. */
static void make_betas(Points *points)
{
    static const double octave[STEPS_PER_OCTAVE] = {1.0, 0x1.6a09e667f3bcdp+0}; /* 1, sqrt(2) */
    for (int step = 0; step < N_BETAS; step++)
        points->beta[step] = ldexp(octave[step % STEPS_PER_OCTAVE], step / STEPS_PER_OCTAVE - 5);
}

/* exp(beta z) of every class at the first betas; further ones follow by squaring. */
static void take_powers(Workspace *workspace)
{
    const Tile *tile = &workspace->tile;
    const int64_t n_classes = workspace->model.n_classes;
    for (int step = 0; step < STEPS_PER_OCTAVE; step++)
        for (int64_t k = 0; k < n_classes; k++)
            workspace->powers[step * n_classes + k] =
                select_lanes(tile->is_possible[k], exp_lanes(splat(workspace->points.beta[step]) * tile->logit[k]), splat(0.0));
}

static void sum_moments(const Workspace *workspace, Moments *moments)
{
    const int64_t n_classes = workspace->model.n_classes;
    for (int step = 0; step < N_POWERS; step++)
        moments->total[step] = moments->first[step] = moments->second[step] = splat(0.0);
    for (int start = 0; start < STEPS_PER_OCTAVE; start++) {
        for (int64_t k = 0; k < n_classes; k++) {
            Lanes power = workspace->powers[start * n_classes + k], logit = workspace->tile.logit[k];
            for (int step = start; step < N_POWERS; step += STEPS_PER_OCTAVE) {
                Lanes weighted = power * logit;
                moments->total[step] += power;
                moments->first[step] += weighted;
                moments->second[step] += weighted * logit;
                power *= power;
            }
        }
    }
}

/* Add a rating of one class per row, with these numbers of ratings. */
static void choose(const Workspace *workspace, Chosen *chosen, int choice, const int64_t *class_index, Lanes ratings)
{
    const Tile *tile = &workspace->tile;
    const int64_t n_classes = workspace->model.n_classes;
    Lanes logit, possible;
    for (int lane = 0; lane < LANES; lane++) {
        logit[lane] = tile->logit[class_index[lane]][lane];
        possible[lane] = tile->is_possible[class_index[lane]][lane] ? ratings[lane] : 0.0;
    }
    chosen->ratings[choice] += ratings;
    chosen->possible_ratings[choice] += possible;
    chosen->logit[choice] += ratings * logit;
    for (int start = 0; start < STEPS_PER_OCTAVE; start++) {
        Lanes power;
        for (int lane = 0; lane < LANES; lane++)
            power[lane] = workspace->powers[start * n_classes + class_index[lane]][lane];
        for (int step = start; step < N_BETAS; step += STEPS_PER_OCTAVE) {
            Lanes weighted = ratings * power, first = weighted * logit;
            chosen->power[choice][step] += weighted;
            chosen->first[choice][step] += first;
            chosen->second[choice][step] += first * logit;
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
        Lanes ratings;
        for (int lane = 0; lane < LANES; lane++) {
            int is_rated = i < rows[lane].n_rated;
            rated[lane] = is_rated ? rows[lane].rated[i] : 0;
            ratings[lane] = is_rated ? (double)rows[lane].ratings[i] : 0.0;
        }
        choose(workspace, chosen, ALL_RATINGS, rated, ratings);
    }
    choose(workspace, chosen, OF_MAJORITY, majority, splat(1.0));
    choose(workspace, chosen, OF_SINGLE, single, splat(1.0));
}
