"""What a body or query states about all rows: labels that are none, division of rows, unit of times, the version of the model, and the
messages of a source that it holds, so that nothing counts twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.input.class_labels import names_of_classes
from calibrant.input.names import IDENTIFIER, IDENTIFIER_RULE, name_of
from calibrant.input.timestamps import TIME_UNITS
from calibrant.results.report import MULTILABEL
from calibrant_server.service.http.problem_responses import shown
from calibrant_server.service.ingest.schemas import MAX_VERSION, ReadingQuery, SourceQuery
from calibrant_server.workers.ingest.entries import SourceOffsets

TASK = "task"  # of bodies that are stored: `POST /v1/score` has a parameter
READING_FIELDS = ("ignore_label", "normalize", "time_unit", "model_version")
CLASSES = "classes"  # a field of scored bodies alone: elsewhere the model declares its classes
MAX_IGNORED = 100


@dataclass(frozen=True)
class BodyReading:
    """What a body states about its values.

    Attributes
    ----------
    ignored : labels that are no rating
    normalize : divide each row of probabilities by its sum, whatever it is
    time_unit : of event times that are numbers; None: numbers are rejected
    model_version : of the model that made the predictions
    class_names : of the classes, where no model declares them
    task : "multilabel", or None if the model or the shape of the scores says what they are
    """

    ignored: tuple[Any, ...] = ()
    normalize: bool = False
    time_unit: str | None = None
    model_version: str | None = None
    class_names: tuple[Any, ...] | None = None
    task: str | None = None

    def stated_by(self, other: BodyReading) -> BodyReading:
        """Return this, with what only the other states."""
        return BodyReading(
            self.ignored or other.ignored,
            self.normalize or other.normalize,
            self.time_unit or other.time_unit,
            self.model_version or other.model_version,
            self.class_names or other.class_names,
            self.task or other.task,
        )


PLAIN = BodyReading()


def reading_of(document: Mapping[str, Any]) -> BodyReading:
    """Return what a document states.

    Raises
    ------
    CalibrationInputError
        A field of another type.
    """
    if document.keys().isdisjoint((*READING_FIELDS, CLASSES, TASK)):
        return PLAIN
    return BodyReading(
        _ignored(document.get("ignore_label")),
        _normalize(document.get("normalize")),
        _time_unit(document.get("time_unit")),
        _model_version(document.get("model_version")),
        _class_names(document.get(CLASSES)),
        _task(document.get(TASK)),
    )


def reading_of_query(query: ReadingQuery) -> BodyReading:
    """Return what query parameters state, such as `ignore_label=255,-100&time_unit=s`."""
    return BodyReading(
        ignored_of_query(query.ignore_label),
        query.normalize,
        query.time_unit,
        _model_version(getattr(query, "model_version", None)),
        task=_task(getattr(query, TASK, None)),
    )


def ignored_of_query(text: str | None) -> tuple[Any, ...]:
    """Return the labels of `ignore_label`, separated by commas."""
    return () if text is None else _ignored([_number(each.strip()) for each in text.split(",")])


def _number(text: str) -> Any:
    """Return the whole number that a text states, else the text, which is a name."""
    return int(text) if text.lstrip("-").isdigit() and text.isascii() and len(text) <= 10 else text


def _ignored(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    found = value if isinstance(value, list) else [value]
    if len(found) > MAX_IGNORED or not all(type(each) in (int, float, str) for each in found):
        detail = f"Received another ignore_label; expected a label, or a list of at most {MAX_IGNORED}, such as 255 or [255, -100]."
        raise CalibrationInputError.at("/ignore_label", "label", detail)
    return tuple(found)


def _normalize(value: Any) -> bool:
    if value is None or type(value) is bool:
        return bool(value)
    raise CalibrationInputError.at(
        "/normalize", "boolean", "Received another normalize; expected true or false."
    )


def _time_unit(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value in TIME_UNITS):
        return value
    detail = f"Received another time_unit; expected {' or '.join(TIME_UNITS)}."
    raise CalibrationInputError.at("/time_unit", "time_unit", detail)


def _model_version(value: Any) -> str | None:
    if value is None:
        return None
    found = name_of(value)
    if found is None or len(found) > MAX_VERSION:
        detail = f"Received {shown(value)} for model_version; expected a name of at most {MAX_VERSION} characters, such as 2.1."
        raise CalibrationInputError.at("/model_version", "name", detail)
    return found


def _task(value: Any) -> str | None:
    if value is None or value == MULTILABEL:
        return None if value is None else MULTILABEL
    detail = f"Received {shown(value)} for task; expected {MULTILABEL}, or none: the scores say whether a model is binary."
    raise CalibrationInputError.at(f"/{TASK}", "task", detail)


def _class_names(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        detail = f"Received {shown(value)} for classes; expected a list of names, one per class, such as ['cat', 'dog']."
        raise CalibrationInputError.at(f"/{CLASSES}", "list", detail)
    return tuple(names_of_classes(value) or ())


ORIGIN_FIELDS = ("source", "offsets")
MAX_OFFSET = 2**53 - 1  # the largest integer that JSON and Lua have exactly


def origin_of(document: Mapping[str, Any]) -> SourceOffsets | None:
    """Return the source and offsets that a document states; None if it states neither.

    Raises
    ------
    CalibrationInputError
        One field without the other, a name that is no id, or offsets that are not `[from, to)`.
    """
    source, offsets = (document.get(name) for name in ORIGIN_FIELDS)
    return None if source is None and offsets is None else _messages_of(source, offsets)


def _messages_of(source: Any, offsets: Any) -> SourceOffsets:
    if source is None or offsets is None:
        missing = ORIGIN_FIELDS[0] if source is None else ORIGIN_FIELDS[1]
        raise _error(missing, "required", "Received one of source and offsets; expected both.")
    if not isinstance(source, str) or not IDENTIFIER.fullmatch(source):
        detail = f"Received a source that is no id; expected {IDENTIFIER_RULE}"
        raise _error("source", "id", detail)
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(type(each) is int for each in offsets)
        and 0 <= offsets[0] < offsets[1] <= MAX_OFFSET
    ):
        detail = (
            f"Received other offsets; expected two integers [from, to) with 0 <= from < to <= {MAX_OFFSET}: "
            "the first message of the batch and the one behind its last."
        )
        raise _error("offsets", "range", detail)
    return SourceOffsets(source, *offsets)


def origin_of_query(query: SourceQuery) -> SourceOffsets | None:
    """Return what query parameters state, such as `source=orders-3&offsets=100,250`."""
    offsets = query.offsets
    numbers: Any = offsets
    if offsets is not None:
        parts = offsets.split(",")
        if all(part.isascii() and part.isdigit() and len(part) <= 16 for part in parts):
            numbers = [int(part) for part in parts]
    return origin_of({"source": query.source, "offsets": numbers})


def agreed_origin(
    in_body: SourceOffsets | None, in_query: SourceOffsets | None
) -> SourceOffsets | None:
    """Return what body or query state; both may, if they are equal."""
    if in_body is not None and in_query is not None and in_body != in_query:
        detail = "Received other source and offsets in the query than in the body; expected the same, or one of them."
        raise _error("offsets", "agreement", detail)
    return in_body or in_query


def _error(field: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError.at(f"/{field}", rule, detail)
