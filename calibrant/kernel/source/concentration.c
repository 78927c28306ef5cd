/* Profile of the Dirichlet concentration; `calibrant/accumulators/concentration.py`. */
#include <math.h>

#include "exponential.h"
#include "workspace.h"

#define N_FACTORS 48            /* of a rising factorial, that are multiplied; beyond them Stirling's series */
#define MAX_PRODUCT_FACTORS 80 /* each at most 2^12 + 48, so that their product stays below 2^1023 */

enum { PROFILE_PREDICTIONS, PROFILE_ZERO_PROBABILITY, PROFILE_WEIGHT, PROFILE_LIMIT, PROFILE_NLL, PROFILE_D1, PROFILE_D2, PROFILE_D1_SQUARED, N_PROFILE_COLUMNS };

/* Sums over a row's rising factorials by concentration: logarithms, and derivatives by the logarithm of the argument. */
typedef struct {
    Lanes log[CONCENTRATION_LANES], d1[CONCENTRATION_LANES], squares[CONCENTRATION_LANES], product[CONCENTRATION_LANES];
    int n_factors;
} Factorials;

/* Concentrations 2^-8, 2^-7, ..., 2^12. */
static void make_concentrations(Points *points)
{
    for (int i = 0; i < CONCENTRATION_LANES * LANES; i++) {
        int octave = (i < N_CONCENTRATIONS ? i : N_CONCENTRATIONS - 1) - 8;
        points->concentration[i / LANES][i % LANES] = ldexp(1.0, octave);
        points->log_concentration[i / LANES][i % LANES] = 0.6931471805599453 * octave;
    }
}

static void start_factorials(Factorials *sums)
{
    *sums = (Factorials){.n_factors = 0};
    for (int part = 0; part < CONCENTRATION_LANES; part++)
        sums->product[part] = splat(1.0);
}

static void take_logarithm_of_product(Factorials *sums)
{
    for (int part = 0; part < CONCENTRATION_LANES; part++) {
        sums->log[part] += log_lanes(sums->product[part]);
        sums->product[part] = splat(1.0);
    }
    sums->n_factors = 0;
}

/* c0 u + c1 u^3 + c2 u^5 + ... */
static double odd_series(const double *coefficients, double inverse)
{
    double total = 0.0;
    for (int i = 5; i >= 0; i--)
        total = coefficients[i] + inverse * inverse * total;
    return total * inverse;
}

/* Factors beyond `N_FACTORS`, by differences of Stirling's series of log gamma, digamma and trigamma. */
static void add_stirling(Factorials *sums, const Points *points, double scale, double n)
{
    static const double log_gamma[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360};
    double digamma[6], trigamma[6];
    for (int i = 0; i < 6; i++) {
        digamma[i] = (2 * i + 1) * log_gamma[i];
        trigamma[i] = (2 * i + 2) * digamma[i];
    }
    for (int i = 0; i < N_CONCENTRATIONS; i++) {
        double x = scale * points->concentration[i / LANES][i % LANES], delta = n - N_FACTORS, low = x + N_FACTORS, high = low + delta;
        double growth = log1p(delta / low), a = 1.0 / low, b = 1.0 / high;
        double log_ratio = (low - 0.5) * growth + delta * (log(high) - 1.0) + odd_series(log_gamma, b) - odd_series(log_gamma, a);
        double d1 = growth - 0.5 * (b - a) - b * odd_series(digamma, b) + a * odd_series(digamma, a);
        double d2 = (b - a) + 0.5 * (b * b - a * a) + b * b * odd_series(trigamma, b) - a * a * odd_series(trigamma, a);
        sums->log[i / LANES][i % LANES] += log_ratio;
        sums->d1[i / LANES][i % LANES] += x * d1;
        sums->squares[i / LANES][i % LANES] -= x * x * d2;
    }
}

/* Add (x + 1) ... (x + n - 1) with x = scale times each concentration. */
static void add_factorial(Factorials *sums, const Points *points, double scale, double n)
{
    int n_factors = n > N_FACTORS ? N_FACTORS - 1 : (int)n - 1;
    if (sums->n_factors + n_factors > MAX_PRODUCT_FACTORS)
        take_logarithm_of_product(sums);
    for (int part = 0; part < CONCENTRATION_LANES; part++) {
        Lanes x = splat(scale) * points->concentration[part];
        for (int j = 1; j <= n_factors; j++) {
            Lanes term = x + splat((double)j), ratio = x / term;
            sums->product[part] *= term;
            sums->d1[part] += ratio;
            sums->squares[part] += ratio * ratio;
        }
    }
    sums->n_factors += n_factors;
    if (n > N_FACTORS)
        add_stirling(sums, points, scale, n);
}

/* Compute the row's total factorial, unless the row before had as many ratings. */
static void prepare_total(Profile *profile, const Points *points, double n_ratings)
{
    Factorials total;
    if (profile->total_ratings == n_ratings)
        return;
    start_factorials(&total);
    add_factorial(&total, points, 1.0, n_ratings);
    take_logarithm_of_product(&total);
    for (int part = 0; part < CONCENTRATION_LANES; part++) {
        profile->total_log[part] = total.log[part];
        profile->total_d1[part] = total.d1[part];
        profile->total_d2[part] = total.d1[part] - total.squares[part];
    }
    profile->total_ratings = n_ratings;
}

static void add_losses(Profile *profile, const Points *points, const Row *row, double log_rated)
{
    Factorials repeated;
    start_factorials(&repeated);
    for (int64_t i = 0; i < row->n_rated; i++)
        if (row->ratings[i] > 1)
            add_factorial(&repeated, points, row->probabilities[row->rated[i]], (double)row->ratings[i]);
    if (repeated.n_factors > 0)
        take_logarithm_of_product(&repeated);
    prepare_total(profile, points, row->n_ratings);
    Lanes weight = splat(row->weight), others = splat((double)row->n_rated - 1.0); /* rated classes beyond the first */
    for (int part = 0; part < CONCENTRATION_LANES; part++) {
        Lanes gradient = weight * (profile->total_d1[part] - others - repeated.d1[part]);
        Lanes nll = profile->total_log[part] - repeated.log[part] - others * points->log_concentration[part] - splat(log_rated);
        profile->nll[part] += weight * nll;
        profile->d1[part] += gradient;
        profile->d2[part] += weight * (profile->total_d2[part] - (repeated.d1[part] - repeated.squares[part]));
        profile->unit_gradient[part] += gradient;
    }
}

static void close_unit_profile(Profile *profile)
{
    for (int part = 0; part < CONCENTRATION_LANES; part++) {
        profile->d1_squared[part] += profile->unit_gradient[part] * profile->unit_gradient[part];
        profile->unit_gradient[part] = splat(0.0);
    }
}

/* Only rows with at least two ratings, and in the sums only those without a rating at probability 0. */
static void fill_concentration(Workspace *workspace, const Row *row, int lane)
{
    Profile *profile = &workspace->profile;
    if (row->n_ratings > 1.0) {
        profile->predictions += 1.0;
        profile->n_impossible += row->n_impossible > 0.0;
        if (row->n_impossible == 0.0) {
            double log_rated = 0.0;
            for (int64_t i = 0; i < row->n_rated; i++)
                log_rated += workspace->tile.log_probability[row->rated[i]][lane];
            profile->weight += row->weight;
            profile->limit += row->weight * row->loss;
            add_losses(profile, &workspace->points, row, log_rated);
        }
    }
    if (row->ends_unit)
        close_unit_profile(profile);
}

/* Write the sums of the fill to the scratch table. */
static void finish_concentration(Workspace *workspace)
{
    Profile *profile = &workspace->profile;
    for (int64_t i = 0; i < N_CONCENTRATIONS && profile->predictions > 0.0; i++) {
        int part = (int)(i / LANES), lane = (int)(i % LANES);
        double *record = record_at(&workspace->tables[CONCENTRATION_PROFILE], i);
        record[PROFILE_PREDICTIONS] = profile->predictions;
        record[PROFILE_ZERO_PROBABILITY] = profile->n_impossible;
        record[PROFILE_WEIGHT] = profile->weight;
        record[PROFILE_LIMIT] = profile->limit;
        record[PROFILE_NLL] = profile->nll[part][lane];
        record[PROFILE_D1] = profile->d1[part][lane];
        record[PROFILE_D2] = profile->d2[part][lane];
        record[PROFILE_D1_SQUARED] = profile->d1_squared[part][lane];
    }
}
