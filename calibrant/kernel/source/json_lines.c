/*
 * Columns of numbers in lines of JSON, one object a line, read to arrays; `service/ingest/plain_columns.py`.
 *
 * Only lines of one form are read: the members of the first line, in its order, with the same kinds of values, and lists of the
 * same length. Ratings alone may have lists of several lengths. Members of other names are copied, as the object of each line, for
 * the parser of complete JSON. Whatever is not plain ends the reading, as in `json_columns.c`.
 */
#include "json_reader.h"

static const Column LINE_COLUMNS[] = {
    {"probability", 0, 0, 1},  {"probabilities", 0, 0, 1}, {"logit", 0, 0, 1},  {"logits", 0, 0, 1},
    {"confidence", 0, 1, 0},   {"weight", 0, 1, 0},        {"label", 1, 1, 1}, {"labels", 1, 1, 1},
    {"label_count", 1, 0, 1}, {"label_counts", 1, 0, 1},
};
#define N_LINE_COLUMNS ((int)(sizeof LINE_COLUMNS / sizeof *LINE_COLUMNS))
#define MAX_LINE_MEMBERS 64

/* The form of the lines, and where the next copied byte goes. */
typedef struct {
    int column[MAX_LINE_MEMBERS]; /* place in `LINE_COLUMNS`, or -1 */
    int64_t ragged_end;           /* values of the ratings so far */
    char *rest;
} Lines;

/* Copy a member of another name. */
static void copy_member(Lines *lines, int is_first, const char *from, const char *to)
{
    *lines->rest++ = is_first ? '{' : ',';
    memcpy(lines->rest, from, (size_t)(to - from));
    lines->rest += to - from;
}

/* Read a number, or a list of numbers, to the next places of the values. Returns how many they are, or 0. */
static int64_t take_element(Reader *reader, const Column *column, int is_list)
{
    if (is_list)
        return take(reader, '[') ? take_numbers(reader, column->is_integer) : 0;
    return take_number(reader, column->is_integer);
}

/* Read a member of the first line: its name, and the kind and width of its column. */
static int take_form(Reader *reader, Lines *lines, int place, JsonMember *member)
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
    int found = column_of(LINE_COLUMNS, N_LINE_COLUMNS, start + member->name + 1, member->name_end - member->name - 2);
    lines->column[place] = found;
    if (found < 0)
        return skip_value(reader);
    const Column *column = &LINE_COLUMNS[found];
    int is_list = *reader->at == '[';
    if (is_list ? !column->has_rows : !column->is_list)
        return 0;
    int64_t n = take_element(reader, column, is_list);
    if (is_list) {
        member->width = n;
        member->kind = !column->is_integer ? NUMBER_ROWS : column->is_list ? RAGGED_ROWS : INTEGER_ROWS;
    } else {
        member->kind = column->is_integer ? INTEGERS : NUMBERS;
    }
    return n > 0;
}

/* Give each column its places among the values, those of ratings last. Returns 0 where there are not enough. */
static int place_columns(Reader *reader, int64_t n_lines)
{
    JsonText *text = reader->text;
    JsonMember *ragged = NULL;
    int64_t end = 0;
    for (int64_t i = 0; i < text->n_members; i++) {
        JsonMember *member = &text->members[i];
        member->n = n_lines;
        if (member->kind == RAGGED_ROWS) {
            if (ragged || text->max_ends < n_lines)
                return 0;
            ragged = member;
        } else if (member->kind != OTHER) {
            member->first = end;
            end += n_lines * (member->width ? member->width : 1);
        }
    }
    if (ragged)
        ragged->first = end;
    return end <= text->max_values;
}

static int take_first_line(Reader *reader, Lines *lines, int64_t n_lines)
{
    JsonText *text = reader->text;
    int64_t most = text->max_members < MAX_LINE_MEMBERS ? text->max_members : MAX_LINE_MEMBERS;
    if (!take(reader, '{'))
        return 0;
    do {
        int64_t place = text->n_members++;
        if (place == most || !take_form(reader, lines, (int)place, &text->members[place]))
            return 0;
    } while (take(reader, ','));
    reader->at = text->text;
    reader->n_values = 0;
    return place_columns(reader, n_lines);
}

/* Read the value of a member of line `i` to its place in its column. */
static int take_value(Reader *reader, Lines *lines, int place, int64_t i)
{
    JsonText *text = reader->text;
    const JsonMember *member = &text->members[place];
    const Column *column = &LINE_COLUMNS[lines->column[place]];
    int is_list = member->width > 0;
    text->n_lists += is_list;
    if (member->kind != RAGGED_ROWS) {
        reader->n_values = member->first + i * (is_list ? member->width : 1);
        return take_element(reader, column, is_list) == (is_list ? member->width : 1);
    }
    reader->n_values = member->first + lines->ragged_end;
    if (!take_element(reader, column, 1))
        return 0;
    lines->ragged_end = text->ends[i] = reader->n_values - member->first;
    return 1;
}

/* Read line `i` up to its end, where only spaces may be left. */
static int take_line(Reader *reader, Lines *lines, int64_t i, const char *end)
{
    JsonText *text = reader->text;
    int n_copied = 0;
    for (int64_t place = 0; place < text->n_members; place++) {
        const JsonMember *member = &text->members[place];
        const int64_t length = member->name_end - member->name;
        if (!take(reader, place ? ',' : '{'))
            return 0;
        skip_space(reader);
        const char *name = reader->at;
        if (reader->end - name < length || memcmp(name, text->text + member->name, (size_t)length))
            return 0;
        reader->at += length;
        if (!take(reader, ':'))
            return 0;
        skip_space(reader);
        if (!(lines->column[place] < 0 ? skip_value(reader) : take_value(reader, lines, (int)place, i)))
            return 0;
        if (lines->column[place] < 0)
            copy_member(lines, n_copied++ == 0, name, reader->at);
    }
    if (!take(reader, '}') || reader->at > end)
        return 0;
    if (n_copied) {
        *lines->rest++ = '}';
        *lines->rest++ = ',';
    }
    while (reader->at < end && (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
    return reader->at == end;
}

/* Name what was read of the ratings: lists of one length are a table. */
static void name_ratings(JsonText *text)
{
    for (int64_t i = 0; i < text->n_members; i++) {
        JsonMember *member = &text->members[i];
        if (member->kind != RAGGED_ROWS)
            continue;
        member->width = text->ends[0];
        member->kind = INTEGER_ROWS;
        for (int64_t row = 1; row < member->n; row++)
            if (text->ends[row] - text->ends[row - 1] != member->width)
                member->kind = RAGGED_ROWS;
    }
}

/* Read lines, the last of which may have an end. Returns how many there are, or 0 where not all of them are plain and alike. */
EXPORTED int64_t calibrant_kernel_json_lines(JsonText *text)
{
    Reader reader = reader_of(text);
    Lines lines = {.rest = text->rest};
    int64_t n_lines = text->n_lines + (text->length > 0 && reader.end[-1] != '\n');
    if (!n_lines || !take_first_line(&reader, &lines, n_lines))
        return 0;
    for (int64_t i = 0; i < n_lines; i++) {
        const char *end = memchr(reader.at, '\n', (size_t)(reader.end - reader.at));
        if (!take_line(&reader, &lines, i, end ? end : reader.end))
            return 0;
        reader.at += end != NULL;
    }
    text->n_rest = lines.rest - text->rest;
    name_ratings(text);
    return n_lines;
}
