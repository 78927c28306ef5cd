/*
 * Columns of numbers in a JSON object, read to arrays; `service/ingest/columns.py`.
 *
 * Only what is plain is read: known names, written without escapes, with lists of numbers or lists of lists of numbers. The
 * other members are skipped, and their places are written for the parser of complete JSON. Whatever is not plain, or not
 * JSON, ends the reading, and that parser reads the document and reports what is wrong with it.
 */
#include <string.h>

#include "decimals.h"
#include "kernel.h"

#define MAX_DIGITS 19
#define MAX_INTEGER_DIGITS 18
#define MAX_EXPONENT 9999

enum { OTHER, NUMBERS, NUMBER_ROWS, INTEGERS, INTEGER_ROWS, RAGGED_ROWS };

static const struct {
    const char *name;
    int is_integer, is_list, has_rows; /* what the elements may be: integers only, numbers, lists */
} COLUMNS[] = {
    {"probabilities", 0, 0, 1}, {"logits", 0, 0, 1},  {"confidences", 0, 1, 0},
    {"weights", 0, 1, 0},       {"labels", 1, 1, 1}, {"label_counts", 1, 0, 1},
};
#define N_COLUMNS ((int)(sizeof COLUMNS / sizeof *COLUMNS))

/* The text ends with a byte 0, which no token accepts, so that no read goes beyond it. */
typedef struct {
    const char *at;
    JsonText *text;
    int64_t n_values, n_ends;
} Reader;

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

/* Read digits into a mantissa; zeros before the first other digit do not count. Returns how many there were. */
static int64_t take_digits(Reader *reader, uint64_t *mantissa, int *n_significant)
{
    const char *first = reader->at, *at = first;
    uint64_t found = *mantissa;
    if (!found)
        while (*at == '0')
            at++;
    const char *significant = at;
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
static int take_number(Reader *reader, int is_integer)
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
    if (n_significant > MAX_DIGITS || reader->n_values == reader->text->max_values)
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

/* Read lists of numbers, of one length or of several where these are integers, and where each ends. */
static int take_rows(Reader *reader, int column, JsonMember *member)
{
    const int64_t first_end = reader->n_ends;
    int is_ragged = 0;
    do {
        if (!take(reader, '[') || reader->n_ends == reader->text->max_ends)
            return 0;
        int64_t width = take_numbers(reader, COLUMNS[column].is_integer);
        if (!width)
            return 0;
        if (reader->n_ends == first_end)
            member->width = width;
        is_ragged |= width != member->width;
        reader->text->ends[reader->n_ends++] = reader->n_values - member->first;
    } while (take(reader, ','));
    member->n = reader->n_ends - first_end;
    member->first_end = first_end;
    reader->text->n_lists += member->n;
    if (is_ragged && !COLUMNS[column].is_list)
        return 0;
    member->kind = is_ragged ? RAGGED_ROWS : COLUMNS[column].is_integer ? INTEGER_ROWS : NUMBER_ROWS;
    return take(reader, ']');
}

static int take_column(Reader *reader, int column, JsonMember *member)
{
    member->first = reader->n_values;
    reader->text->n_lists++;
    if (!take(reader, '['))
        return 0;
    skip_space(reader);
    if (*reader->at == '[')
        return COLUMNS[column].has_rows && take_rows(reader, column, member);
    member->kind = COLUMNS[column].is_integer ? INTEGERS : NUMBERS;
    return COLUMNS[column].is_list && (member->n = take_numbers(reader, COLUMNS[column].is_integer)) > 0;
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

static int column_of(const char *name, int64_t length)
{
    for (int column = 0; column < N_COLUMNS; column++)
        if ((int64_t)strlen(COLUMNS[column].name) == length && !memcmp(COLUMNS[column].name, name, (size_t)length))
            return column;
    return -1;
}

static int take_member(Reader *reader, JsonMember *member)
{
    const char *start = reader->text->text;
    skip_space(reader);
    *member = (JsonMember){.name = reader->at - start};
    if (!take_name(reader))
        return 0;
    member->name_end = reader->at - start;
    if (!take(reader, ':'))
        return 0;
    skip_space(reader);
    member->value = reader->at - start;
    int column = column_of(start + member->name + 1, member->name_end - member->name - 2);
    int is_read = column < 0 ? skip_value(reader) : take_column(reader, column, member);
    member->value_end = reader->at - start;
    return is_read;
}

/* Read an object. Returns whether all of it is plain, or skipped. */
static int read_columns(JsonText *text)
{
    Reader reader = {text->text, text, 0, 0};
    text->n_members = text->n_lists = 0;
    if (!take(&reader, '{'))
        return 0;
    do {
        if (text->n_members == text->max_members || !take_member(&reader, &text->members[text->n_members++]))
            return 0;
    } while (take(&reader, ','));
    if (!take(&reader, '}'))
        return 0;
    skip_space(&reader);
    return reader.at == text->text + text->length;
}
