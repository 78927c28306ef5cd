"""Columns of the files of scores and labels by their roles, in the order of the scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.roles import (
    IDS,
    ColumnRoles,
    classes_of,
    is_rater,
    label_of,
    listed,
    named,
    names_logits,
    number_in,
    scores_of,
)
from calibrant.cli.input_files.tables import FileTable
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.class_labels import CLASS_NAME_RULE, is_class_name
from calibrant.input.table_names import reject_other_names

REPEATED = "Of a file with one row per item and reader: --long --raters COLUMN."
MARKED = (
    "Each row has a 1 for one class and else 0: save the index of the class, labels.argmax(axis=1)."
)


class Files:
    """The tables of scores and labels, which may be one, and the roles of their columns.

    Parameters
    ----------
    coded : replaces the names of units, cases and ids as they are read; None to keep them
    """

    def __init__(
        self,
        table: FileTable,
        label_table: FileTable,
        roles: ColumnRoles,
        coded: Callable[[str], str] | None = None,
    ) -> None:
        self.table, self.label_table, self.roles, self._coded = table, label_table, roles, coded
        self.is_one = table is label_table

    def scores(self) -> tuple[NDArray[np.float64], list[str], bool, str]:
        """Return scores, their columns, whether they are logits, and why."""
        names = self._score_names()
        is_logits, why = self._logits(names)
        return self.table.numbers(names), names, is_logits, why

    def _score_names(self) -> list[str]:
        if self.roles.scores is not None:
            return named(self.table, self.roles.scores, "--scores")
        options = ("unit", "case", "id", "weight", "slice", "n_ratings")
        taken = [name for option in options if (name := getattr(self.roles, option)) is not None]
        several = {
            "--raters": self.roles.raters,
            "--label": self.roles.label,
            "--label-shares": self.roles.shares,
        }
        for option, columns in several.items():
            if self.is_one and columns:
                taken += named(self.table, columns, option)
        return scores_of(self.table, taken)

    def _logits(self, names: list[str]) -> tuple[bool, str]:
        if self.roles.logits is not None:
            return self.roles.logits, "--logits" if self.roles.logits else "--probabilities"
        if any(map(names_logits, names)) and self.table.is_named:
            return True, f"the name {names[0]!r}"
        if names_logits(self.table.path.stem):
            return True, f"the file name {self.table.path.name!r}"
        return False, "default"

    def order(self, n: int) -> NDArray[np.int64] | None:
        """Return the row of the labels for each row of the scores, by id; None for rows in the same order."""
        name = self.roles.id
        if self.is_one or name is None:
            n_labels = self._n_labels()
            self.reject_other_ids()
            if n_labels != n:
                detail = (
                    f"Received {n_labels} rows; expected {n}, as many as {self.table.path.name}."
                )
                raise InputFileError(self.label_table.path, detail, "length")
            return None
        mine, theirs = (self.ids_of(table, name) for table in (self.table, self.label_table))
        places = {each: row for row, each in enumerate(theirs)}
        for row, each in enumerate(mine):
            if each not in places:
                detail = f"Received the id {each!r:.60}, which {self.label_table.path.name} does not have."
                raise InputFileError(
                    self.table.path, detail, "unknown_id", name, row, self.table.line(row)
                )
        return np.array([places[each] for each in mine], np.int64)

    def unused_id(self) -> tuple[str, str] | None:
        """Return file and column of ids if the rows of two files were matched by order although one of them has ids."""
        if self.is_one or self.roles.id is not None:
            return None
        taken = (self.roles.unit, self.roles.case, self.roles.label, self.roles.slice)
        for table in (self.label_table, self.table):
            for name in table.names:
                if name.lower() in IDS and name not in taken:
                    return table.path.name, name
        return None

    def reject_other_ids(self) -> None:
        """Reject two files in the same column of ids that have other ids row by row, and are not matched by them.

        Raises
        ------
        InputFileError
            As described.
        """
        found = self.unused_id()
        if found is None:
            return
        _, name = found
        if not (name in self.table.names and name in self.label_table.names):
            return
        mine, theirs = (table.texts(name) for table in (self.table, self.label_table))
        for row, (one, two) in enumerate(zip(mine, theirs, strict=False)):
            if one != two:
                detail = f"Received another id than in {self.table.path.name}; rows are matched by order. Match them by id: --id {name}."
                line = self.label_table.line(row)
                raise InputFileError(self.label_table.path, detail, "other_id", name, row, line)

    def ids_of(self, table: FileTable, name: str) -> list[str]:
        """Return a column of ids, one per row and each once."""
        (column,) = named(table, name, "--id")
        ids: dict[str, int] = {}
        for row, each in enumerate(self.coded_texts(table, column)):
            if each is None or each in ids:
                detail = "Received no id; expected one per row."
                if each is not None:
                    detail = f"Received the id {each[:60]!r} a second time (first in row {ids[each]}). {REPEATED}"
                raise InputFileError(table.path, detail, "id", column, row, table.line(row))
            ids[each] = row
        return list(ids)

    def coded_texts(self, table: FileTable, column: str) -> list[str | None]:
        """Return a column of names, as the report has them."""
        texts = table.texts(column)
        if self._coded is None:
            return texts
        return [None if each is None else self._coded(each) for each in texts]

    def _n_labels(self) -> int:
        name = self.label_table.names[0]
        columns = getattr(self.label_table, "columns", None)
        return len(self.label_table.texts(name) if columns is None else columns[name])

    def labels(
        self, order: NDArray[np.int64] | None, classes: Sequence[str]
    ) -> tuple[list[list[str | None]], str | None, list[str]]:
        """Return one list of texts per rater, the column of the labels, and the columns of the raters.

        A text that is the name of a class is a label, whatever else it may mean.
        """
        table, roles = self.label_table, self.roles
        if roles.raters is not None:
            return self._ratings(table, roles.raters, order, classes)
        if roles.label is not None:
            (name,) = named(table, roles.label, "--label")
        else:
            found = label_of(table)
            if found is None:
                raise InputFileError(table.path, self.no_label(table), "no_label")
            name = found
        if self.is_one and name in self._score_names():
            raise InputFileError(table.path, self._only_scores(table), "no_label")
        self._reject_wide(table, name)
        return [self._in_order(table.texts(name, classes), order)], name, []

    def _ratings(
        self,
        table: FileTable,
        raters: str,
        order: NDArray[np.int64] | None,
        classes: Sequence[str],
    ) -> tuple[list[list[str | None]], str | None, list[str]]:
        if raters == "all" and len(table.names) == 1:
            matrix = table.numbers(table.names)
            names = [f"{table.names[0]}[{place}]" for place in range(matrix.shape[1])]
            columns = [
                [None if np.isnan(x) else f"{x:g}" for x in column] for column in matrix.T.tolist()
            ]
        else:
            names = self.all_raters(table) if raters == "all" else named(table, raters, "--raters")
            columns = [table.texts(name, classes) for name in names]
        return [self._in_order(each, order) for each in columns], None, names

    def all_raters(self, table: FileTable) -> list[str]:
        """Return all columns without another role."""
        roles = self.roles
        taken = {roles.unit, roles.case, roles.id, roles.weight, roles.slice}
        if self.is_one:
            taken |= set(self._score_names())
            return [name for name in table.names if name not in taken and is_rater(name)]
        return [name for name in table.names if name not in taken]

    def _only_scores(self, table: FileTable) -> str:
        return f"No labels: {table.path.name} has scores only. Add the file of labels: calibrant score {table.path.name} labels.csv"

    def no_label(self, table: FileTable) -> str:
        """Return what is wrong with a table without a column of labels, and what to do."""
        if self.is_one and set(self._score_names()) == set(table.names):
            return self._only_scores(table)
        raters = [name for name in table.names if is_rater(name)]
        advice = (
            f"Name one: --label, or the readers: --raters {','.join(raters)}."
            if raters
            else "Name the column: --label NAME, or one per reader: --raters NAMES."
        )
        if self.is_one:
            advice += " Or pass the file of the labels as the second argument."
        return f"No column is known to hold labels; the columns are {listed(table.names)}. {advice}"

    def _reject_wide(self, table: FileTable, name: str) -> None:
        columns = getattr(table, "columns", {})
        column = columns.get(name)
        if isinstance(column, np.ndarray) and column.ndim == 2 and column.shape[1] > 1:
            marks_class = bool(np.isin(column, (0, 1)).all() and (column.sum(axis=1) == 1).all())
            advice = MARKED if marks_class else "For one column per reader: --raters all."
            detail = (
                f"Received labels of shape {column.shape}; expected one class per row. {advice}"
            )
            raise InputFileError(table.path, detail, "shape", name)

    def _in_order(
        self, column: list[str | None], order: NDArray[np.int64] | None
    ) -> list[str | None]:
        return column if order is None else [column[place] for place in order]

    def classes(self, score_names: list[str], n_classes: int) -> list[str] | None:
        """Return the names of the classes: the option's, or those of the columns of scores."""
        found = self._classes(score_names, n_classes)
        repeated = next((name for name, n in Counter(found).items() if n > 1), None)
        if repeated is not None:
            detail = (
                f"Received the class {repeated!r:.60} more than once; expected each class once."
            )
            raise InputFileError(self.table.path, detail, "repeated_class")
        if not all(map(is_class_name, found or ())):
            detail = f"Received another text as the name of a class; expected {CLASS_NAME_RULE}."
            raise InputFileError(self.table.path, detail, "class_name")
        return found

    def _classes(self, score_names: list[str], n_classes: int) -> list[str] | None:
        if self.roles.classes is not None:
            given = list(self.roles.classes)
            self._reject_missing_classes(given)
            if len(given) != max(n_classes, 2):
                detail = f"Received {len(given)} names of classes; expected {max(n_classes, 2)}, one per column of scores."
                raise InputFileError(self.table.path, detail, "n_classes")
            if self.table.is_named:
                reject_other_names("scores", score_names, given)
            return given
        if not self.table.is_named or len(score_names) != n_classes:
            return None
        if n_classes > 1:
            return classes_of(score_names)
        self._reject_other_class(score_names[0])
        return None

    def _reject_other_class(self, name: str) -> None:
        """Reject a single column whose number is not that of class 1, whose probability it must be."""
        if self.roles.scores is None and number_in(name) not in (None, 1):
            detail = (
                f"Received one column of scores, {name!r:.60}, whose number is not that of class 1. "
                f"If it is the probability of class 1, pass --scores {name}."
            )
            raise InputFileError(self.table.path, detail, "class_number", name)

    def _reject_missing_classes(self, classes: Sequence[str]) -> None:
        """Reject a name of a class that `--na` also names: it would be a class and no value."""
        both = self.roles.form.also_classes(classes)
        if both:
            detail = f"Received {both[0]!r:.60} as a class and in --na; expected one of them. Leave it out of --na."
            raise InputFileError(self.label_table.path, detail, "missing_class")

    def names(self, option: str, order: NDArray[np.int64] | None) -> list[str] | None:
        """Return a column of names, None if the option is not given."""
        found = self._column(option)
        if found is None:
            return None
        table, name = found
        values = self.coded_texts(table, name)
        for row, value in enumerate(values):
            if value is None:
                detail = f"Received no value; expected one per row for --{option}."
                raise InputFileError(table.path, detail, "missing", name, row, table.line(row))
        return [
            str(value)
            for value in (values if table is self.table else self._in_order(values, order))
        ]

    def slice_values(self, order: NDArray[np.int64] | None) -> list[str | None] | None:
        """Return the value of each row in the column of `--slice`."""
        found = self._column("slice")
        if found is None:
            return None
        values = found[0].texts(found[1])
        return values if found[0] is self.table else self._in_order(values, order)

    def weights(self, order: NDArray[np.int64] | None) -> NDArray[np.float64] | None:
        """Return the weights of the rows."""
        found = self._column("weight")
        if found is None:
            return None
        values = found[0].numbers([found[1]])[:, 0]
        return values if found[0] is self.table or order is None else values[order]

    def _column(self, option: str) -> tuple[FileTable, str] | None:
        """Return the table and the column that an option names; the labels' file comes first."""
        name = getattr(self.roles, option)
        if name is None:
            return None
        is_first = name in self.label_table.names and not self.roles.long
        table = self.label_table if is_first else self.table
        (column,) = named(table, name, f"--{option}")
        return table, column

    def located(
        self, error: CalibrationInputError, is_logits: bool, scores: list[str], label: str | None
    ) -> InputFileError:
        """Return an error of the library with the file, the column and the line."""
        first: Violation = error.violations[0]
        table, column = self.table, None
        if first.argument in ("labels", "label_counts", "label_shares"):
            table, column = self.label_table, label
        elif first.argument == "n_ratings":
            table, column = self.label_table, self.roles.n_ratings
        elif first.argument in ("units", "cases", "ids", "weights"):
            found = self._column(first.argument.removesuffix("s"))
            table, column = found if found is not None else (table, None)
        elif len(scores) == 1 and table.is_named:
            column = scores[0]
        detail = first.detail
        if first.rule in ("row_sum", "range") and self.roles.scores is None and len(scores) > 1:
            detail += f" Columns read as scores: {listed(scores)}. Others: --scores."
        line = None if first.row is None else table.line(first.row)
        return InputFileError(table.path, detail, first.rule, column, first.row, line)
