"""A posted batch of `POST /v1/score` in any of its formats: JSON, NDJSON, CSV, `.npy`, Arrow; its annotations and options.

The formats of tables have no field for options: these are in the query. An Arrow table has the columns of JSON, with scores and labels
as lists, or one number per cell, as in CSV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import Option
from calibrant.estimators.roc_curve import MAX_POINTS
from calibrant.input.annotations import COLUMNS as OF_ANNOTATIONS
from calibrant.input.annotations import Annotations
from calibrant.input.arrow_column import Column
from calibrant.input.labels import MAX_RATERS
from calibrant.input.names import MAX_LENGTH
from calibrant.metrics import OPTIONS, requested
from calibrant.peers import PEERS
from calibrant_server.service.http.bodies import ARROW, CSV, JSON, NPY, Body, decoded_limit
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import Name, TextName
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.http.problems import Problem
from calibrant_server.service.ingest.arrow_stream import read_arrow
from calibrant_server.service.ingest.body_reading import CLASSES
from calibrant_server.service.ingest.columns import COLUMNS, arrow_batch, read_columns
from calibrant_server.service.ingest.flat_table import from_flat
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, indexed, reject_unknown
from calibrant_server.service.ingest.schemas import (
    Classes,
    IgnoreLabel,
    ListedPrediction,
    Normalize,
    PredictionRecord,
    PredictionsBody,
    TimeUnit,
)
from calibrant_server.service.ingest.table_bodies import read_csv, read_npy
from calibrant_server.service.settings import Settings

TABLES = (ARROW, CSV, NPY)
# Columns that only scored rows have, by their name in a record.
_MORE = {"rater": "raters"}
_OF_LISTS = {"probabilities", "logits", "confidences"}


def read_scored_body(
    body: Body, settings: Settings, columns: str | None = None, options: str | None = None
) -> ParsedBatch:
    """Return the columns of a body, with named raters and options.

    Parameters
    ----------
    columns : roles of the columns of a table, or names of arrays, as in the query
    options : JSON, as in the query

    Raises
    ------
    Problem
        400 for a body that is not of its format, 413 for one of too many rows or columns.
    CalibrationInputError
        An unknown column, or a value that it cannot have; parameters that the format does not take.
    """
    if body.media_type not in TABLES:
        _reject_parameters(body.media_type, columns=columns, options=options)
        head = (
            "batch_id",
            "options",
            CLASSES,
            *(["annotations"] if body.media_type == JSON else []),
        )
        return read_columns(body, settings, _MORE, head)
    found = _READERS[body.media_type](body, settings, columns)
    return found if options is None else replace(found, options=_options(options))


def _reject_parameters(media_type: str, **parameters: str | None) -> None:
    for name, value in parameters.items():
        if value is not None:
            where = (
                "options of the body"
                if name == "options"
                else "the names that the body's fields have"
            )
            detail = f"Received {name} with a body of {media_type}; expected {where}. The parameter is for tables."
            raise CalibrationInputError.at(f"/{name}", "media_type", detail)


def _options(text: str) -> Any:
    try:
        return read_json(text.encode(), 1000)
    except Problem as error:
        raise CalibrationInputError.at(
            "/options", "json", f"Received options that are not JSON: {error.detail}"
        ) from error


def _csv(body: Body, settings: Settings, columns: str | None) -> ParsedBatch:
    table = read_csv(body.data, settings.max_rows)
    return from_flat(table.columns, columns, table.lines)


def _npy(body: Body, settings: Settings, columns: str | None) -> ParsedBatch:
    return read_npy(body.data, columns, settings.max_rows)


def _arrow(body: Body, settings: Settings, columns: str | None) -> ParsedBatch:
    found, batch_id = read_arrow(body.data, decoded_limit(len(body.data), settings))
    if columns is None and not _OF_LISTS.isdisjoint(found):
        raters = found.pop("raters", None)
        batch = arrow_batch(found, batch_id, (*COLUMNS, "raters"))
        if raters is None:
            return batch
        named = {"raters": indexed(raters), "labels": indexed(batch.columns.get("labels"))}
        return replace(batch, columns=batch.columns | named)
    lists = [name for name, each in found.items() if not _is_flat(each)]
    if lists:
        detail = "Received a column of lists in a table of cells; expected one number or text per cell, or the columns of JSON"
        raise CalibrationInputError.at(f"/{lists[0]}", "arrow_type", detail)
    return from_flat({name: indexed(each) for name, each in found.items()}, columns, [])


def _is_flat(column: Any) -> bool:
    return isinstance(column, Column) and getattr(column.values, "ndim", 2) == 1


_READERS: dict[str, Callable[[Body, Settings, str | None], ParsedBatch]] = {
    CSV: _csv,
    NPY: _npy,
    ARROW: _arrow,
}


_OTHERS = ("labels", "label_counts", "label_shares", "raters")


def with_annotations(posted: ParsedBatch) -> ParsedBatch:
    """Return a batch with the labels and raters of its annotations; raters of a larger crowd are not named.

    Raises
    ------
    CalibrationInputError
        Annotations of another form, next to other labels, or of rows without ids.
    """
    if posted.annotations is None:
        return posted
    given = _checked(posted.annotations)
    for name in _OTHERS:
        if posted.columns.get(name) is not None:
            detail = f"Received both annotations and {name}; expected one of them."
            raise CalibrationInputError.at("/annotations", "one_label_column", detail)
    ids = posted.columns.get("ids")
    if ids is None:
        detail = "Received annotations without ids; expected the id of each prediction."
        raise CalibrationInputError.at("/ids", "missing", detail)
    long = Annotations(given["ids"], given["labels"], given.get("raters"))
    return replace(
        posted, columns={**posted.columns, "labels": long}, has_named_raters=long.is_named
    )


def named_ratings(posted: ParsedBatch) -> tuple[Any, Any]:
    """Return labels and names of raters by row; None instead of the names where there are none, or those of a crowd."""
    labels = posted.columns.get("labels")
    if not isinstance(labels, Annotations):
        return labels, posted.columns.get("raters")
    by_row, raters = labels.by_row([str(each) for each in indexed(posted.columns["ids"])])
    if not labels.is_named or len(set(labels.raters)) > MAX_RATERS:
        return labels, None
    return [each or None for each in by_row], [each or None for each in raters]


def _checked(given: Any) -> dict[str, Any]:
    """Return the columns of the table."""
    if not isinstance(given, dict):
        detail = 'Received another type; expected {"ids": [...], "raters": [...], "labels": [...]}.'
        raise CalibrationInputError.at("/annotations", "object", detail)
    reject_unknown(given, OF_ANNOTATIONS, "/annotations")
    for name in ("ids", "labels"):
        if not isinstance(given.get(name), list):
            detail = f"Received no list of {name}; expected one entry per rating."
            raise CalibrationInputError.at(f"/annotations/{name}", "list", detail)
    return given


COMPOSITE = r"^[A-Za-z0-9._-]{1,60}$"


class LossFactors(BaseModel):
    """Factors of the terms of the weighted sum."""

    model_config = ConfigDict(extra="forbid")

    ace: float = Field(1, ge=0, le=1e6, description="Factor of the term that `membership` selects.")
    dice: float = Field(1, ge=0, le=1e6)
    cross_entropy: float = Field(1, ge=0, le=1e6)


class SectionOptions(BaseModel):
    """Options of the included results."""

    model_config = ConfigDict(extra="forbid", strict=True)

    metric: str | None = Field(
        None,
        max_length=400,
        description="For `stability`, `stability_by_case` and `by_case`: a metric as in `metrics`. Default: ece.",
    )
    subsets: Literal["nested", "independent"] | None = Field(
        None, description="For `stability` and `stability_by_case`: how subsets are drawn."
    )
    points: int | None = Field(
        None, ge=2, le=MAX_POINTS, description="For `roc`: maximum number of points."
    )
    frequency_bins: int | None = Field(
        None, ge=1, le=100, description="For `cases`: bins of the observed frequency."
    )
    case: str | None = Field(
        None, max_length=MAX_LENGTH, description="For `cases`: name of a case whose table is added."
    )
    packed: bool = Field(
        False,
        description="For `confidence_histogram`: return its 2^14 bins, packed as `POST /v1/models/{model}/histograms` takes them.",
    )
    sensitivity: bool = Field(
        False, description="For `cases`: also return the averages at 5, 10, 20, 50 and 100 bins."
    )
    composites: dict[Annotated[str, Field(pattern=COMPOSITE)], list[int]] | None = Field(
        None,
        description='Unions of classes instead of the classes of cases: {"whole": [1, 2], "core": [2]}.',
    )
    loss_weights: LossFactors | None = Field(
        None, description="For `losses`: factors of the terms. Default: 1 each."
    )
    gradients: Literal["probabilities", "logits"] | None = Field(
        None,
        description="For `losses`: return the derivatives by probabilities or by logits. Default: no derivatives.",
    )
    compat: Literal[tuple(PEERS)] | None = Field(  # type: ignore[valid-type]
        None,
        description="For `compat`: compute metrics as this library does. Default: all libraries.",
    )


def _option_field(option: Option) -> Any:
    kind: Any = Literal[option.allowed] if option.allowed else option.type
    limits: dict[str, Any] = (
        {"ge": option.low, "le": option.high} if option.type is not str else {"max_length": 200}
    )
    given = {
        name: limit for name, limit in limits.items() if limit is not None and not option.allowed
    }
    return (
        kind | None,
        Field(None, description=f"{option.description} Default: {option.default}.", **given),
    )


# One source: the options that the metrics declare are those that a body may set for all of them.
_OPTION_FIELDS: dict[str, Any] = {
    name: _option_field(option) for name, option in sorted(OPTIONS.items())
}
ScoreOptions = create_model(
    "ScoreOptions",
    __base__=SectionOptions,
    __doc__="Options of every metric that takes them (brackets of a metric have precedence), and of `include`.",
    **_OPTION_FIELDS,
)


def options_in(posted: ParsedBatch) -> dict[str, Any]:
    """Return the options of a batch, or raise every rule that they break."""
    if posted.options is None:
        return {}
    place = posted.options_at
    options = validated(ScoreOptions, posted.options, tuple(place)).model_dump(exclude_none=True)
    if "metric" in options:
        requested([options["metric"]], f"/{'/'.join(place)}/metric")
    return options


AnnotationTable = Annotated[
    dict[str, list[Any]] | None,
    Field(
        description="`ids`, `labels` and `raters` of single ratings, instead of `labels` of rows; a rater's last one of an id counts."
    ),
]


class ScoredBody(PredictionsBody):
    """A batch with labels and their raters."""

    classes: Classes = None
    annotations: AnnotationTable = None

    raters: list[TextName | list[TextName | None] | None] | None = Field(
        None,
        description="Who rated, in the order of `labels`: each named rater is scored separately too.",
    )
    options: ScoreOptions | None = Field(
        None,
        description='Options of metrics and of included results. In NDJSON, send them as the first line: {"options": {...}}.',
    )


class RatedFields(BaseModel):
    """Fields that only scored rows have."""

    rater: TextName | list[TextName | None] | None = None


class ScoredRecord(RatedFields, PredictionRecord):
    """One line of NDJSON: one prediction with its labels and their raters."""


class ListedScore(RatedFields, ListedPrediction):
    """One prediction of a list with its labels and their raters."""


class ScoredRecords(BaseModel):
    """A batch as records, one per prediction."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    ignore_label: IgnoreLabel = None
    normalize: Normalize = False
    time_unit: TimeUnit = None
    classes: Classes = None
    annotations: AnnotationTable = None
    predictions: list[ListedScore]
    options: ScoreOptions | None = None
