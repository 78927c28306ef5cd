/*
 * Columns of numbers in a JSON object, read to arrays; `service/ingest/plain_columns.py`.
 *
 * Only what is plain is read: known names, written without escapes, with lists of numbers or lists of lists of numbers. The
 * other members are skipped, and their places are written for the parser of complete JSON. Whatever is not plain, or not
 * JSON, ends the reading, and that parser reads the document and reports what is wrong with it.
 */
#include "json_reader.h"

static const Column COLUMNS[] = {
    {"probabilities", 0, 0, 1}, {"logits", 0, 0, 1},  {"confidences", 0, 1, 0},
    {"weights", 0, 1, 0},       {"labels", 1, 1, 1}, {"label_counts", 1, 0, 1},
};
#define N_COLUMNS ((int)(sizeof COLUMNS / sizeof *COLUMNS))

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
    int column = column_of(COLUMNS, N_COLUMNS, start + member->name + 1, member->name_end - member->name - 2);
    int is_read = column < 0 ? skip_value(reader) : take_column(reader, column, member);
    member->value_end = reader->at - start;
    return is_read;
}

/* Read an object. Returns whether all of it is plain, or skipped. */
EXPORTED int64_t calibrant_kernel_json(JsonText *text)
{
    Reader reader = reader_of(text);
    if (!take(&reader, '{'))
        return 0;
    do {
        if (text->n_members == text->max_members || !take_member(&reader, &text->members[text->n_members++]))
            return 0;
    } while (take(&reader, ','));
    if (!take(&reader, '}'))
        return 0;
    skip_space(&reader);
    return reader.at == reader.end;
}
