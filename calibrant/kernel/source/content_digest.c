/* Additive hash of a batch's rows; `calibrant/core/content_digest.py`. */
#include "hashing.h"
#include "workspace.h"

#define N_HEAD_WORDS 5
#define FIRST_VOTE_KEY (1ull << 32)

/* Keys of a row's words by their place, then of its ratings by class, for both lanes of the hash. */
static void make_keys(uint64_t *high, uint64_t *low, int64_t n_classes)
{
    for (int64_t i = 0; i < N_HEAD_WORDS + 2 * n_classes; i++) {
        int64_t n_words = N_HEAD_WORDS + n_classes;
        high[i] = mix(i < n_words ? (uint64_t)i : FIRST_VOTE_KEY + (uint64_t)(i - n_words));
        low[i] = fmix(high[i]);
    }
}

static uint64_t prediction_hash(const Workspace *workspace, const Batch *batch, int64_t row)
{
    uint64_t state = workspace->score_hash[row], ratings = 0;
    for (int64_t i = workspace->first_entry[row]; i < workspace->first_entry[row + 1]; i++)
        ratings += mix((uint64_t)batch->rating_class[i] * 0x1F123BB5u + (uint64_t)batch->rating_count[i]);
    return mix(state ^ ratings);
}

/* Sum of the hashes of a row's words and ratings, each with the key of its place. */
static void hash_row(const Workspace *workspace, const Batch *batch, int64_t row, uint64_t sums[2])
{
    const int64_t n_classes = workspace->model.n_classes;
    const uint64_t *high = workspace->word_keys[0], *low = workspace->word_keys[1];
    const double *scores = batch->scores + row * n_classes;
    const uint64_t head[N_HEAD_WORDS] = {
        (uint64_t)n_classes | (uint64_t)batch->is_logits << 32 | (uint64_t)batch->digest_source << 33,
        bits_of(batch->weights ? batch->weights[row] : 1.0),
        batch->prediction_hash[row],
        batch->unit_hash[row],
        batch->case_hash ? batch->case_hash[row] : 0,
    };
    sums[0] = sums[1] = 0;
    for (int i = 0; i < N_HEAD_WORDS; i++) {
        sums[0] += mix(head[i] ^ high[i]);
        sums[1] += fmix(head[i] ^ low[i]);
    }
    for (int64_t k = 0; k < n_classes; k++) {
        uint64_t word = bits_of(scores[k]);
        sums[0] += mix(word ^ high[N_HEAD_WORDS + k]);
        sums[1] += fmix(word ^ low[N_HEAD_WORDS + k]);
    }
    for (int64_t i = workspace->first_entry[row]; i < workspace->first_entry[row + 1]; i++) {
        int64_t key = N_HEAD_WORDS + n_classes + batch->rating_class[i];
        sums[0] += mix(high[key] + (uint64_t)batch->rating_count[i]);
        sums[1] += fmix(low[key] + (uint64_t)batch->rating_count[i]);
    }
}

static void add_to_digest(Batch *batch, uint64_t high, uint64_t low)
{
    batch->digest[1] += low;
    batch->digest[0] += high + (batch->digest[1] < low);
}

/* Add the rows of one unit. Rows of a named unit share its weight, so each is mixed with the others' content. */
static void add_unit_to_digest(Workspace *workspace, Batch *batch, const UnitRow *rows, int64_t n)
{
    uint64_t high_of_unit = 0, low_of_unit = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t sums[2];
        hash_row(workspace, batch, rows[i].row, sums);
        workspace->row_digest[0][i] = sums[0];
        workspace->row_digest[1][i] = sums[1];
        high_of_unit += sums[0];
        low_of_unit += sums[1];
    }
    uint64_t high = mix(batch->has_units ? high_of_unit : 0), low = fmix(batch->has_units ? low_of_unit : 0);
    for (int64_t i = 0; i < n; i++)
        add_to_digest(batch, mix(workspace->row_digest[0][i] + high), fmix(workspace->row_digest[1][i] + low));
}
