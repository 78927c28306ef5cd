/*
 * Tokens of JSON: numbers, names, and values to be skipped.
 *
 * Only what is plain is read. A number that a double or an int64 cannot hold exactly as a correct parser reads it, an escape in a
 * name, or text that is not JSON ends the reading.
 */
#ifndef CALIBRANT_JSON_READER_H
#define CALIBRANT_JSON_READER_H

#include <string.h>

#include "decimals.h"
#include "kernel.h"

#define MAX_DIGITS 19
#define MAX_INTEGER_DIGITS 18
#define MAX_EXPONENT 9999
#define DIGITS_TOGETHER 8
#define BYTES_TOGETHER 128

enum { OTHER, NUMBERS, NUMBER_ROWS, INTEGERS, INTEGER_ROWS, RAGGED_ROWS };

/* A column of numbers, and what its elements may be: integers only, numbers, lists. */
typedef struct {
    const char *name;
    int is_integer, is_list, has_rows;
} Column;

/* The text ends with a byte 0, which no token accepts, so that no read goes beyond it. */
typedef struct {
    const char *at, *end;
    JsonText *text;
    int64_t n_values, n_ends;
} Reader;

static Reader reader_of(JsonText *text)
{
    text->n_members = text->n_lists = 0;
    return (Reader){text->text, text->text + text->length, text, 0, 0};
}

/* Write the most values, lists and lines that the text can have, from its commas, brackets and line ends. */
EXPORTED void calibrant_kernel_json_size(JsonText *text)
{
    int64_t commas = 0, brackets = 0, lines = 0;
    for (int64_t first = 0; first < text->length; first += BYTES_TOGETHER) {
        const char *at = text->text + first;
        int64_t n = text->length - first < BYTES_TOGETHER ? text->length - first : BYTES_TOGETHER;
        uint8_t own_commas = 0, own_brackets = 0, own_lines = 0; /* bytes: as many as a register holds are counted at once */
        for (int64_t i = 0; i < n; i++) {
            own_commas += at[i] == ',';
            own_brackets += at[i] == '[';
            own_lines += at[i] == '\n';
        }
        commas += own_commas;
        brackets += own_brackets;
        lines += own_lines;
    }
    /* A number follows a comma, a bracket or the colon of a member, and a line has a comma behind each member but the last. */
    text->max_values = commas + brackets + lines + 1;
    text->max_ends = brackets;
    text->n_lines = lines;
}

static void skip_space(Reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\r' || *reader->at == '\t')
        reader->at++;
}

static int take(Reader *reader, char expected)
{
    skip_space(reader);
    if (*reader->at != expected)
        return 0;
    reader->at++;
    return 1;
}

static int is_digit(char character)
{
    return '0' <= character && character <= '9';
}

/* Read eight digits at once, where there are so many. The steps are Lemire's (see `decimals.h`). */
static inline int take_eight(const Reader *reader, const char *at, uint64_t *mantissa)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t text;
    if (reader->end - at < DIGITS_TOGETHER)
        return 0;
    memcpy(&text, at, sizeof text);
    const uint64_t high = 0xf0f0f0f0f0f0f0f0u;
    if (((text & high) | ((text + 0x0606060606060606u) & high) >> 4) != 0x3333333333333333u)
        return 0;
    text -= 0x3030303030303030u;
    text = 10 * text + (text >> 8); /* pairs of digits in every second byte */
    const uint64_t pairs = 0x000000ff000000ffu;
    uint64_t upper = (text & pairs) * (100u + (1000000ull << 32)), lower = (text >> 16 & pairs) * (1u + (10000ull << 32));
    *mantissa = 100000000u * *mantissa + (uint32_t)((upper + lower) >> 32);
    return 1;
#else
    return 0;
#endif
}

/* Read digits into a mantissa; zeros before the first other digit do not count. Returns how many there were. */
static inline __attribute__((always_inline)) int64_t take_digits(Reader *reader, uint64_t *mantissa, int *n_significant)
{
    const char *first = reader->at, *at = first;
    uint64_t found = *mantissa;
    if (!found)
        while (*at == '0')
            at++;
    const char *significant = at;
    while (take_eight(reader, at, &found))
        at += DIGITS_TOGETHER;
    for (; is_digit(*at); at++)
        found = 10 * found + (uint64_t)(*at - '0');
    /* Beyond `MAX_DIGITS` the mantissa has overflowed, and the number is not used. */
    int64_t n_digits = *n_significant + (at - significant);
    *n_significant = n_digits > MAX_DIGITS ? MAX_DIGITS + 1 : (int)n_digits;
    *mantissa = found;
    reader->at = at;
    return at - first;
}

static int take_exponent(Reader *reader, int64_t *power)
{
    int64_t exponent = 0;
    reader->at++;
    int is_negative = *reader->at == '-';
    if (*reader->at == '-' || *reader->at == '+')
        reader->at++;
    if (!is_digit(*reader->at))
        return 0;
    for (; is_digit(*reader->at); reader->at++)
        if (exponent < MAX_EXPONENT)
            exponent = 10 * exponent + (*reader->at - '0');
    *power += is_negative ? -exponent : exponent;
    return 1;
}

/* Read a number in the grammar of JSON to the next place of the values. */
static inline int take_number(Reader *reader, int is_integer)
{
    uint64_t mantissa = 0;
    int64_t power = 0;
    int n_significant = 0, is_negative = *reader->at == '-', is_whole = 1;
    reader->at += is_negative;
    if (*reader->at == '0' && is_digit(reader->at[1]))
        return 0;
    if (!take_digits(reader, &mantissa, &n_significant))
        return 0;
    if (*reader->at == '.') {
        reader->at++;
        int64_t n_digits = take_digits(reader, &mantissa, &n_significant);
        if (!n_digits)
            return 0;
        power = -n_digits;
        is_whole = 0;
    }
    if (*reader->at == 'e' || *reader->at == 'E') {
        is_whole = 0;
        if (!take_exponent(reader, &power))
            return 0;
    }
    if (n_significant > MAX_DIGITS || reader->n_values >= reader->text->max_values)
        return 0;
    if (is_whole && is_negative && !mantissa) /* an integer 0, which has no sign */
        return 0;
    void *place = reader->text->values + reader->n_values++;
    if (is_integer) {
        int64_t value = is_negative ? -(int64_t)mantissa : (int64_t)mantissa;
        memcpy(place, &value, sizeof value);
        return is_whole && n_significant <= MAX_INTEGER_DIGITS;
    }
    double value = 0.0;
    if (mantissa && !nearest_double(mantissa, power, reader->text->powers, &value))
        return 0;
    value = is_negative ? -value : value;
    memcpy(place, &value, sizeof value);
    return 1;
}

/* Read the rest of a list of at least one number. Returns how many there are, or 0. */
static int64_t take_numbers(Reader *reader, int is_integer)
{
    int64_t before = reader->n_values;
    do {
        skip_space(reader);
        if (!take_number(reader, is_integer))
            return 0;
    } while (take(reader, ','));
    return take(reader, ']') ? reader->n_values - before : 0;
}

/* Read a string without escapes. */
static int take_name(Reader *reader)
{
    if (!take(reader, '"'))
        return 0;
    while (*reader->at && *reader->at != '"' && *reader->at != '\\')
        reader->at++;
    return take(reader, '"');
}

/* Go to the comma or brace after a value of any kind. */
static int skip_value(Reader *reader)
{
    int64_t depth = 0;
    for (; *reader->at; reader->at++) {
        char found = *reader->at;
        if (found == '"') {
            for (reader->at++; *reader->at && *reader->at != '"'; reader->at++)
                if (*reader->at == '\\' && reader->at[1])
                    reader->at++;
            if (!*reader->at)
                return 0;
        } else if (depth == 0 && (found == ',' || found == '}')) {
            return 1;
        } else if (found == '[' || found == '{') {
            depth++;
        } else if ((found == ']' || found == '}') && --depth < 0) {
            return 0;
        }
    }
    return 0;
}

/* Return the place of a column by its name, or -1. */
static int column_of(const Column *columns, int n_columns, const char *name, int64_t length)
{
    for (int column = 0; column < n_columns; column++)
        if ((int64_t)strlen(columns[column].name) == length && !memcmp(columns[column].name, name, (size_t)length))
            return column;
    return -1;
}

#endif
