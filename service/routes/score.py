"""One posted batch scored at once: nothing is stored, and the raw rows allow more than the state does."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial as partial_of
from typing import Any, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.concurrency import run_in_threadpool

from calibrant.core.batch import BatchResult
from calibrant.core.errors import CalibrationInputError
from calibrant.figures.reliability import draw_reliability
from calibrant.input.labels import named_raters
from calibrant.metrics import requested
from calibrant.metrics.label_distribution_errors import INSTANCES
from calibrant.metrics.requests import shared_options
from calibrant.report import pane_query_of, score_batch
from calibrant.report_sections import SECTIONS, chosen
from calibrant.results.metric_requests import scopes_by_index
from calibrant.results.metrics import MetricBinning, MetricsQuery
from calibrant.results.reads import Edges, Raters
from calibrant.results.temperature import Temperature, TemperatureQuery
from calibrant_server.service.http.bodies import NDJSON, Body
from calibrant_server.service.http.parameters import media_type_of
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.http.problems import ProblemError
from calibrant_server.service.ingest.body_reading import BodyReading, ignored_of_query
from calibrant_server.service.ingest.model_rules import checked_batch, reject_too_many
from calibrant_server.service.ingest.parsed_batch import ParsedBatch
from calibrant_server.service.ingest.schemas import ValueNotes, ValuesQuery
from calibrant_server.service.ingest.score_limits import multilabel_scores, reject_costly_score
from calibrant_server.service.ingest.scored_bodies import (
    TABLES,
    ScoredBody,
    ScoredRecord,
    ScoredRecords,
    named_ratings,
    options_in,
    read_scored_body,
    with_annotations,
)
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.operations import Access, Operations, Scorer
from calibrant_server.service.reads.queries import invalid_query
from calibrant_server.service.reads.representations import estimates, image_of, or_drawn, part_of
from calibrant_server.service.reads.service import JSON
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.query import (
    BINNING,
    CI,
    EDGES,
    MIN_COUNT,
    RATERS,
    SCOPE,
    same_field,
)

router = Operations("score")


class ScoreParameters(ValuesQuery):
    """What is computed of the batch, and how its values are read."""

    metrics: str = same_field(MetricsQuery, "metrics")
    bins: int = Field(
        15, ge=1, le=16_384, description="Number of bins: any, because the raw rows are available."
    )
    bin_edges: str | None = Field(
        None,
        max_length=20_000,
        description="Own edges of the bins instead of `bins`, from 0 to 1: 0,0.5,0.9,1. The temperature's ECE has 15 bins.",
    )
    binning: MetricBinning = BINNING
    edges: Edges = EDGES
    raters: Raters = RATERS
    min_count: float = MIN_COUNT
    scope: str | None = SCOPE
    objective: Literal["nll", "brier", "ece"] = same_field(TemperatureQuery, "objective")
    ci: float = CI
    task: Literal["multilabel"] | None = Field(
        None,
        description="`multilabel`: `probabilities` or `logits` of independent events and `labels` of 0 and 1, a list per row of each. The "
        "response has means over labels, and `labels` with each label's own metrics and temperature; `partial` and `include` are not taken.",
    )
    partial: bool = Field(False, description="Score the valid rows and return the invalid ones.")
    include: str | None = Field(
        None,
        max_length=400,
        description="Costly results, separated by commas. `instances`: every row's own value in the metrics that "
        f"have one. Further sections: {', '.join(SECTIONS)}.",
    )
    columns: str | None = Field(
        None,
        max_length=20_000,
        description="For CSV and Arrow: `NAME:ROLE` of columns with other names than p0, p1, …, label, unit; roles are the "
        "fields of a record, `rating` (one column per rater) and `ignore`. For npy: names of the arrays. Default: probabilities,labels.",
        examples=["cat:probability,dog:probability,diagnosis:label"],
    )
    options: str | None = Field(
        None,
        max_length=20_000,
        description="For CSV, Arrow and npy: `options` as in a JSON body.",
    )


class Baselines(BaseModel):
    """Each metric under every label policy and of each named rater alone."""

    disagreement: float | None = Field(
        description="Share of a prediction's pairs of ratings that differ, as the mean over predictions with at least two."
    )
    n_majority_ties: int
    metrics: dict[str, dict[str, Any]] = Field(
        description="By slug: `policies`, `by_rater` with `value` and `n` of each, `mean_of_raters`."
    )


class PlainResponse(ValueNotes):
    """Metrics, reliability and temperature of the batch."""

    model_config = ConfigDict(extra="allow")

    n_predictions: int
    n_ratings: int
    metrics: estimates()  # type: ignore[valid-type]
    reliability: dict[str, Any] | None = Field(None, description="Absent for multi-label rows.")
    temperature: part_of(Temperature) | None = Field(  # type: ignore[valid-type]
        None, description="Absent for multi-label rows."
    )
    labels: dict[str, dict[str, Any]] | None = Field(
        None, description="Of multi-label rows: by label its counts, `metrics` and `temperature`."
    )
    baselines: Baselines | None = Field(None, description="Present if `raters` names the raters.")
    rejected: int = 0
    errors: list[ProblemError] = Field([])


class ScoreSection(BaseModel):
    """Result of an endpoint that `include` names."""

    model_config = ConfigDict(extra="allow")


# One source: a client may include exactly the sections of the response.
_INCLUDED: dict[str, Any] = {name: (ScoreSection, None) for name in SECTIONS}
ScoreResponse = create_model(
    "ScoreResponse",
    __base__=PlainResponse,
    __doc__="Metrics, reliability and temperature of the batch.",
    **_INCLUDED,
)


# Parameters of how the body is read.
NOT_COMPUTED = {"columns", "options", "task"} | set(ValuesQuery.model_fields)
SCORED: dict[str, Any] = success(ScoreResponse, "The scores, or the reliability diagram")


@router.operation(
    "POST /v1/score",
    Scorer,
    or_drawn(SCORED),
    406,
    query=ScoreParameters,
    takes_=takes(
        "Predictions",
        {JSON: (ScoredBody, ScoredRecords), NDJSON: ScoredRecord, **dict.fromkeys(TABLES)},
    ),
)
async def score_once(access: Access) -> Response:
    """Score one posted batch; nothing is stored. As SVG or PNG, the reliability diagram."""
    query, media_type = access.query, media_type_of(None, access.request)
    sections = included(query.include)
    _reject_with_task(query, media_type)
    params = {
        **query.model_dump(exclude=NOT_COMPUTED),
        **_own_edges(query),
        "metrics": _keys(query.metrics, shared_options(query.binning)),
        "include": [each for each in sections if each != INSTANCES.name],
    }
    if INSTANCES.name in sections:
        params[INSTANCES.name] = "yes"
    takes = (JSON, NDJSON, *TABLES)
    result = await access.computed(scored, params, access.settings, query, takes=takes)
    if media_type == JSON:
        return Response(result, media_type=JSON)
    drawn = await run_in_threadpool(diagram, result, media_type)
    return Response(drawn, headers={"Vary": "Accept"}, media_type=media_type)


def _reject_with_task(query: ScoreParameters, media_type: str) -> None:
    """Reject what multi-label rows do not have."""
    others = {
        "include": query.include is not None,
        "partial": query.partial,
        "Accept": media_type != JSON,
    }
    for name in [each for each, given in others.items() if given and query.task is not None]:
        detail = f"Received {name} with task={query.task}, which returns metrics as JSON alone. Remove {name}."
        raise invalid_query(CalibrationInputError.at(f"/{name}", "not_taken", detail))


def _own_edges(query: ScoreParameters) -> dict[str, Any]:
    """Return own edges with their number of bins; empty without."""
    if query.bin_edges is None:
        return {}
    try:
        if "bins" in query.model_fields_set:
            detail = f"Received both bins={query.bins} and bin_edges; expected one of them."
            raise CalibrationInputError.at("/bin_edges", "one_of", detail)
        pane_query = pane_query_of({"bin_edges": query.bin_edges, "binning": query.binning})
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    return {"bin_edges": pane_query.bin_edges, "bins": pane_query.bins}


def diagram(result: bytes, media_type: str) -> bytes:
    """Return the reliability diagram of the scores."""
    scores = orjson.loads(result)
    table = {**scores["reliability"], "error": scores["metrics"].get("ece")}
    return image_of(draw_reliability, table, media_type)


def _keys(text: str, shared: Collection[str]) -> list[str]:
    """Return the requested metrics, each by its canonical key."""
    try:
        return [each.key for each in requested(text, shared=shared)]
    except CalibrationInputError as error:
        raise invalid_query(error) from error


def included(text: str | None) -> list[str]:
    """Return the sections in a comma-separated list; reject an unknown one with the list of known ones."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    try:
        for name in names:
            if name != INSTANCES.name:
                chosen(name)
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    return names


def scored(body: Body, params: dict[str, Any], settings: Settings, query: ScoreParameters) -> bytes:
    """Return the scores of the batch in `body` as JSON."""
    posted = with_annotations(read_scored_body(body, settings, query.columns, query.options))
    stated = BodyReading(ignored_of_query(query.ignore_label), query.normalize)
    reading = posted.reading.stated_by(stated)
    options = options_in(posted)
    params = params | options
    if query.task is not None:
        pane_query = pane_query_of(params)
        found = multilabel_scores(posted, reading, pane_query, params["metrics"], body.sent_bytes)
        return orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY)
    (labels, names), plain = named_ratings(posted), dict(posted.columns)
    plain.pop("raters", None)
    is_named = posted.has_named_raters or names is not None
    posted = replace(posted, columns=plain, reading=reading, has_named_raters=is_named)
    checked = checked_batch(posted, None, query.partial)
    violations = [posted.place(violation) for violation in checked.violations]
    reject_too_many(checked.batch.n, violations, checked.n_rejected)
    if not checked.batch.row_total.any():
        detail = "Received no label; expected one in at least one row: without labels there is nothing to score."
        raise CalibrationInputError.at("/labels", "labels_required", detail)
    params |= _of_classes(params, posted.reading.class_names or posted.class_names)
    n_ratings = 0 if names is None else int(checked.batch.row_total.sum())
    cases = checked.batch.cases
    reject = partial_of(
        reject_costly_score, checked.batch.n, params["metrics"], body.sent_bytes,
        bins=params["bins"], sections=params["include"], n_classes=checked.batch.n_classes,
        n_ratings=n_ratings, n_cases=0 if cases is None else len(set(cases)),
    )  # fmt: skip
    reject()
    raters = _raters(posted, labels, names, checked)
    if raters:
        reject(n_raters=len(raters))
    try:
        scores = score_batch(checked.batch, params, raters)
    except CalibrationInputError as error:
        in_body = [
            each
            for each in error.violations
            if each.pointer.split("/")[1:2] and each.pointer.split("/")[1] in options
        ]
        if not in_body:
            raise invalid_query(error) from error
        raise invalid_input(
            [replace(each, pointer=f"/options{each.pointer}") for each in in_body]
        ) from error
    rejected = {
        "rejected": len(violations),
        "errors": [vars(violation) for violation in violations],
    }
    return orjson.dumps({**scores, **rejected}, option=orjson.OPT_SERIALIZE_NUMPY)


def _of_classes(params: dict[str, Any], classes: Any) -> dict[str, Any]:
    """Return scope and metrics with classes by index."""
    try:
        scope, metrics = scopes_by_index(params["scope"], params["metrics"], classes)
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    return {"scope": scope, "metrics": metrics}


def _raters(
    posted: ParsedBatch, labels: Any, names: Any, checked: BatchResult
) -> dict[str, Any] | None:
    """Return the classes of each named rater for the scored rows; None if no rater is named."""
    if names is None:
        return None
    try:
        return named_raters(
            labels,
            names,
            checked.batch.n_classes,
            checked.accepted_rows,
            posted.reading.ignored,
            posted.reading.class_names,
        )
    except CalibrationInputError as error:
        raise error.each(posted.place) from error
