/* BLAKE2b digests (RFC 7693, without a key) of many short texts; `calibrant/kernel/digests.py`. */
#include <string.h>

#include "kernel.h"

#define BLAKE2B_BLOCK 128

static const uint64_t blake2b_start[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint8_t blake2b_order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t turned_right(uint64_t word, int bits)
{
    return word >> bits | word << (64 - bits);
}

/* Mix two words of the message into four words of the state. */
static inline void mix_words(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = turned_right(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned_right(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned_right(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned_right(v[b] ^ v[c], 63);
}

static void compress_block(uint64_t *state, const uint8_t *block, uint64_t n_bytes, int is_last)
{
    uint64_t m[16], v[16];
    for (int i = 0; i < 16; i++) {
        m[i] = 0;
        for (int j = 7; j >= 0; j--)
            m[i] = m[i] << 8 | block[8 * i + j];
    }
    memcpy(v, state, 8 * sizeof *v);
    memcpy(v + 8, blake2b_start, sizeof blake2b_start);
    v[12] ^= n_bytes;
    v[14] ^= is_last ? UINT64_MAX : 0;
    for (int round = 0; round < 12; round++) {
        const uint8_t *at = blake2b_order[round % 10];
        mix_words(v, 0, 4, 8, 12, m[at[0]], m[at[1]]);
        mix_words(v, 1, 5, 9, 13, m[at[2]], m[at[3]]);
        mix_words(v, 2, 6, 10, 14, m[at[4]], m[at[5]]);
        mix_words(v, 3, 7, 11, 15, m[at[6]], m[at[7]]);
        mix_words(v, 0, 5, 10, 15, m[at[8]], m[at[9]]);
        mix_words(v, 1, 6, 11, 12, m[at[10]], m[at[11]]);
        mix_words(v, 2, 7, 8, 13, m[at[12]], m[at[13]]);
        mix_words(v, 3, 4, 9, 14, m[at[14]], m[at[15]]);
    }
    for (int i = 0; i < 8; i++)
        state[i] ^= v[i] ^ v[i + 8];
}

static void write_digest(const uint8_t *text, int64_t length, int64_t size, uint8_t *digest)
{
    uint64_t state[8];
    memcpy(state, blake2b_start, sizeof state);
    state[0] ^= 0x01010000 ^ (uint64_t)size;
    int64_t at = 0;
    for (; length - at > BLAKE2B_BLOCK; at += BLAKE2B_BLOCK)
        compress_block(state, text + at, (uint64_t)(at + BLAKE2B_BLOCK), 0);
    uint8_t last[BLAKE2B_BLOCK] = {0};
    if (length > at)
        memcpy(last, text + at, (size_t)(length - at));
    compress_block(state, last, (uint64_t)length, 1);
    for (int64_t i = 0; i < size; i++)
        digest[i] = (uint8_t)(state[i / 8] >> 8 * (i % 8));
}

/* Write the digest of each text; they follow each other in `data` and end at `ends`. `size` is 1 to 64 bytes. */
EXPORTED void calibrant_kernel_digests(const uint8_t *data, const int64_t *ends, int64_t n, int64_t size, uint8_t *digests)
{
    int64_t start = 0;
    for (int64_t i = 0; i < n; i++) {
        write_digest(data + start, ends[i] - start, size, digests + i * size);
        start = ends[i];
    }
}
