/* Random halves of cells, several times at once; `calibrant/estimators/placement_error.py`. */
#include <math.h>

#include "kernel.h"

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/*
 * Write the correct ratings of the halves of each cell, the lower first, and of each cell that is not halved.
 *
 * Half of a cell's ratings are in each half. A normal draw moves some, by the standard deviation of ratings at the cell's own rate, and no
 * more than there are.
 */
static void divide_cells(const Divisions *divisions, double *halves)
{
    for (int64_t draw = 0; draw < divisions->n_draws; draw++) {
        const double *correct = divisions->correct + draw * divisions->correct_stride;
        const double *normal = divisions->drawn + draw * divisions->drawn_stride;
        for (int64_t i = 0; i < divisions->n; i++) {
            if (!divisions->is_halved[i]) {
                *halves++ = correct[i];
                continue;
            }
            double rate = correct[i] / divisions->weight[i];
            double variance = larger(rate * (1.0 - rate) * divisions->per_chance[i], 0.0);
            double room = smaller(correct[i], divisions->weight[i] - correct[i]);
            double moved = 0.5 * smaller(larger(sqrt(variance) * normal[i], -room), room);
            *halves++ = 0.5 * correct[i] - moved;
            *halves++ = 0.5 * correct[i] + moved;
        }
    }
}
