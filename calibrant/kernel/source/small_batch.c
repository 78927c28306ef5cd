/*
 * A small JSON document of scores and labels, read, checked and laid out as a packed batch; `calibrant/core/small_batches.py`.
 *
 * Only what needs no decision is read: rows of scores of the model's classes, at least one rating of each, and the id of the
 * batch. Anything else, also anything invalid, ends the reading: the document is then read and checked in full.
 */
#include <float.h>
#include <math.h>

#include "json_reader.h"

#define SMALL_SUM_EXACT 1e-9
#define SMALL_SUM_LENIENT 1e-3
#define SMALL_MEMBERS 3
#define SMALL_MOST 127 /* rows, classes, and ratings of a row: each number is packed as one byte */
#define MAX_ID_LENGTH 128

/* The sum of at most `SMALL_MOST` values in numpy's order, so that both give the same bits. */
static double small_sum(const double *values, int64_t n)
{
    double part[8] = {0}, sum = 0.0;
    int64_t i = 0;
    if (n >= 8) {
        for (; i < n - n % 8; i += 8)
            for (int j = 0; j < 8; j++)
                part[j] += values[i + j];
        sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; i < n; i++)
        sum += values[i];
    return sum;
}

/* Divide a row of probabilities by its sum where that is near 1. Returns 0 where it is not. */
static int normalise_row(double *row, int64_t n)
{
    double total = small_sum(row, n), off = fabs(total - 1.0);
    if (off > SMALL_SUM_LENIENT)
        return 0;
    if (off > SMALL_SUM_EXACT)
        for (int64_t i = 0; i < n; i++)
            row[i] /= total;
    return 1;
}

static int take_scores(SmallBatch *batch, const JsonMember *member)
{
    const int64_t n_classes = batch->n_classes;
    if (member->kind != NUMBER_ROWS || member->width != n_classes || n_classes < 2 || n_classes > SMALL_MOST
        || member->n > SMALL_MOST)
        return 0;
    batch->n = member->n;
    double *scores = (double *)batch->columns;
    memcpy(scores, batch->values + member->first, (size_t)(batch->n * n_classes) * sizeof *scores);
    const double least = batch->is_logits ? -FLT_MAX : 0.0, most = batch->is_logits ? FLT_MAX : 1.0;
    for (int64_t i = 0; i < batch->n * n_classes; i++)
        if (!(least <= scores[i] && scores[i] <= most))
            return 0;
    if (!batch->is_logits)
        for (int64_t row = 0; row < batch->n; row++)
            if (!normalise_row(scores + row * n_classes, n_classes))
                return 0;
    for (int64_t i = 0; i < batch->n * n_classes; i++)
        if (scores[i] != floor(scores[i]))
            return 1;
    return 0; /* whole numbers are packed in fewer bytes */
}

/* Count a rating among those of its row from `first` on, which are in the order of their classes. */
static void add_rating(SmallBatch *batch, int64_t first, int64_t row, int64_t rated)
{
    uint8_t *rows = batch->ratings, *classes = rows + batch->capacity, *counts = classes + batch->capacity;
    int64_t at = batch->n_ratings;
    while (at > first && classes[at - 1] > rated)
        at--;
    if (at > first && classes[at - 1] == rated) {
        counts[at - 1]++;
        return;
    }
    for (int64_t i = batch->n_ratings++; i > at; i--) {
        classes[i] = classes[i - 1];
        counts[i] = counts[i - 1];
    }
    rows[batch->n_ratings - 1] = (uint8_t)row;
    classes[at] = (uint8_t)rated;
    counts[at] = 1;
}

static int take_ratings(SmallBatch *batch, const JsonMember *member)
{
    if (member->n != batch->n)
        return 0;
    int64_t start = 0;
    for (int64_t row = 0; row < batch->n; row++) {
        int64_t end = member->kind == INTEGERS ? row + 1 : batch->ends[member->first_end + row];
        if (end - start > SMALL_MOST)
            return 0;
        for (int64_t first = batch->n_ratings; start < end; start++) {
            int64_t rated;
            memcpy(&rated, batch->values + member->first + start, sizeof rated);
            if (rated < 0 || rated >= batch->n_classes)
                return 0;
            add_rating(batch, first, row, rated);
        }
    }
    return 1;
}

/* Note where the id is: letters, digits and a few signs, with no sign that a path would resolve. */
static int take_id(SmallBatch *batch, const JsonMember *member)
{
    const char *at = batch->text + member->value, *first = at + 1;
    if (*at != '"')
        return 0;
    for (at = first; is_digit(*at) || ('a' <= *at && *at <= 'z') || ('A' <= *at && *at <= 'Z') || (*at && strchr("._:@-", *at)); at++)
        ;
    if (*at != '"' || at == first || at - first > MAX_ID_LENGTH)
        return 0;
    batch->id = first - batch->text;
    batch->id_end = at - batch->text;
    for (at++; at < batch->text + member->value_end; at++)
        if (*at != ' ' && *at != '\n' && *at != '\r' && *at != '\t')
            return 0;
    return 1;
}

/* Write the columns as 64-bit numbers one after the other, and as a packed batch has them: bytes of equal significance together. */
static void lay_out(SmallBatch *batch)
{
    const int64_t n_scores = batch->n * batch->n_classes;
    const uint8_t *scores = (const uint8_t *)batch->columns;
    for (int64_t byte = 0; byte < 8; byte++)
        for (int64_t i = 0; i < n_scores; i++)
            batch->packed[byte * n_scores + i] = scores[8 * i + byte];
    for (int64_t column = 0; column < 3; column++) {
        const uint8_t *from = batch->ratings + column * batch->capacity;
        memcpy(batch->packed + 8 * n_scores + column * batch->n_ratings, from, (size_t)batch->n_ratings);
        for (int64_t i = 0; i < batch->n_ratings; i++)
            batch->columns[n_scores + column * batch->n_ratings + i] = from[i];
    }
}

/* Read a document. Returns whether it is a batch that needs no further check. */
EXPORTED int64_t calibrant_kernel_small_batch(SmallBatch *batch)
{
    JsonMember members[SMALL_MEMBERS];
    const JsonMember *scores = 0, *labels = 0, *id = 0;
    JsonText text = {
        .text = batch->text, .length = batch->length, .powers = batch->powers, .values = batch->values, .ends = batch->ends,
        .members = members, .max_values = batch->capacity, .max_ends = batch->capacity, .max_members = SMALL_MEMBERS,
    };
    if (!calibrant_kernel_json(&text))
        return 0;
    batch->n_ratings = batch->is_logits = batch->id = batch->id_end = 0;
    static const Column known[] = {{"probabilities", 0, 0, 1}, {"logits", 0, 0, 1}, {"labels", 1, 1, 1}, {"batch_id", 0, 0, 0}};
    for (int64_t i = 0; i < text.n_members; i++) {
        const JsonMember *member = members + i;
        int name = column_of(known, 4, batch->text + member->name + 1, member->name_end - member->name - 2);
        const JsonMember **place = name < 0 ? 0 : name < 2 ? &scores : name == 2 ? &labels : &id;
        if (!place || *place)
            return 0;
        *place = member;
        batch->is_logits |= name == 1;
    }
    if (!scores || !labels || !take_scores(batch, scores) || !take_ratings(batch, labels) || (id && !take_id(batch, id)))
        return 0;
    lay_out(batch);
    return 1;
}
