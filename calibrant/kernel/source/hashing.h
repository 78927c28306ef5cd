/* Fixed 64-bit hashes; `calibrant/core/hashing.py`. */
#ifndef CALIBRANT_HASHING_H
#define CALIBRANT_HASHING_H

#include <stdint.h>
#include <string.h>

/* Steele, Lea and Flood's SplitMix64 finaliser. */
static inline uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* Appleby's MurmurHash3 finaliser; maps 0 to 0. */
static inline uint64_t fmix(uint64_t x)
{
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDull;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ull;
    return x ^ (x >> 33);
}

/* Bits of a number, with minus zero as zero. */
static inline uint64_t bits_of(double value)
{
    uint64_t bits;
    value += 0.0;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A number in [0, 1) from the hash's upper 53 bits. */
static inline double uniform(uint64_t hash)
{
    return (double)(hash >> 11) * 0x1p-53;
}

/* Hash of a row's scores. */
static inline uint64_t hash_scores(const double *scores, int64_t n_classes)
{
    uint64_t state = 0;
    for (int64_t k = 0; k < n_classes; k++)
        state = mix(state ^ bits_of(scores[k]));
    return state;
}

enum { CHAINS = 8 };

/* Hashes of rows (n, n_classes), eight at once: the chain of one row alone waits for each multiplication. */
static inline void hash_all_scores(const double *scores, int64_t n, int64_t n_classes, uint64_t *hashes)
{
    int64_t row = 0;
    for (; row + CHAINS <= n; row += CHAINS) {
        const double *first = scores + row * n_classes;
        uint64_t state[CHAINS] = {0};
        for (int64_t k = 0; k < n_classes; k++)
            for (int64_t i = 0; i < CHAINS; i++)
                state[i] = mix(state[i] ^ bits_of(first[i * n_classes + k]));
        memcpy(hashes + row, state, sizeof state);
    }
    for (; row < n; row++)
        hashes[row] = hash_scores(scores + row * n_classes, n_classes);
}

#endif
