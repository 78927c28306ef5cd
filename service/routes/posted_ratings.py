"""Posted ratings: class probabilities given them, and methods of predicting disagreement compared on them; nothing is stored."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.raters import posterior
from calibrant.raters.alpha_calibration import compared as compared_ways
from calibrant.raters.rated_rows import MAX_FEATURE
from calibrant.results.disagreement import MethodsQuery, PosteriorQuery, disagreement
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import TextName
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.columns import posted_columns
from calibrant_server.service.ingest.model_rules import checked_batch
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, object_of, reject_unknown
from calibrant_server.service.ingest.schemas import Label
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.operations import Access, MapReader, Operations
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.query import Declared, query_class, query_for
from calibrant_server.workers.store.model_config import ModelConfig

router = Operations("raters")
MAX_MEMBERS, MAX_NUMBERS, MAX_CONCENTRATION = 1000, 2_000_000, 1e12
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
error = CalibrationInputError.at


class RatedBody(BaseModel):
    """Predictions with ratings."""

    model_config = ConfigDict(extra="forbid")

    probabilities: list[list[float]] | None = Field(
        None, description="Rows sum to 1 within the rounding of their values."
    )
    logits: list[list[float]] | None = None
    confidences: list[float] | None = Field(None, description="Probability of class 1.")
    labels: list[Label] | None = Field(None, description="A class, or one per rater, or null.")
    label_counts: list[list[int]] | None = Field(None, description="Ratings by class.")
    ids: list[TextName] | None = None


COLUMNS = frozenset((*RatedBody.model_fields, "units", "weights"))


class PosteriorBody(RatedBody):
    """Predictions with ratings; `members` instead of one row per prediction makes an ensemble."""

    members: list[list[list[float]]] | None = Field(
        None, description="Probabilities by member, prediction and class."
    )
    member_weights: list[float] | None = Field(
        None, description="Prior weights of the members. Default: equal."
    )
    concentration: float | list[float] | None = Field(
        None, description="alpha0, one for all or one per prediction. Default: the fitted one."
    )


class PosteriorResponse(BaseModel):
    """Class probabilities given the ratings."""

    model: str
    belief: Literal["dirichlet", "ensemble", "dirichlet_ensemble"]
    concentration: float | list[float] | None
    concentration_source: Literal["given", "fitted"] | None
    n: int
    ids: list[str] | None
    probabilities: list[list[float]]
    disagreement: list[float] = Field(description="Probability that two further raters differ.")
    prior_disagreement: list[float]
    member_weights: list[list[float]] | None = Field(
        description="Weights of the members for each prediction, given the ratings."
    )


class PosteriorParameters(ClockQuery, query_class(PosteriorQuery)):  # type: ignore[misc]
    """The window to which the concentration is fitted, if none is given."""


@router.operation(
    "POST /v1/models/{model}/posterior",
    MapReader,
    success(PosteriorResponse, "Probabilities given the ratings"),
    query=PosteriorParameters,
    takes_=takes("Predictions with ratings", {JSON: PosteriorBody}),
)
async def compute_posterior(access: Access) -> Response:
    """Return class probabilities of posted predictions given their ratings; nothing is stored."""
    query, settings, config = access.query, access.settings, await access.usable_config()
    posted = await access.computed(_posted, PosteriorBody, settings)
    belief = query.belief or ("ensemble" if "members" in posted else "dirichlet")
    _check_belief(belief, posted)
    fitted = None
    if belief != "ensemble" and "concentration" not in posted:
        fitted = await _fitted(access.reads, config, query)
    result = await in_thread(_computed, posted, belief, fitted, config, settings)
    return Response(result, media_type=JSON)


async def _fitted(reads: ReadService, config: ModelConfig, query: PosteriorParameters) -> float:
    """Return the model's alpha0 of the window."""
    fit = query_for(disagreement, penalty=query.penalty, ci=query.ci)
    found = orjson.loads((await reads.result(ReadQuery(fit, config, query))).body)
    if found.get("concentration") is None:
        detail = f"No concentration is given and none can be fitted: {found.get('reason') or 'no ratings'}."
        raise error("/concentration", "not_fitted", detail)
    return float(found["concentration"]["value"])


def _posted(body: Body, model: type[BaseModel], settings: Settings) -> dict[str, Any]:
    """Return the fields of a body that are there."""
    document = object_of(read_json(body.data, settings.max_rows * 3 + 100))
    reject_unknown(document, tuple(model.model_fields))
    return {name: value for name, value in document.items() if value is not None}


def _batch(posted: dict[str, Any], config: ModelConfig, settings: Settings) -> Batch:
    columns = {name: column for name, column in posted.items() if name in COLUMNS}
    return checked_batch(ParsedBatch(posted_columns(columns, settings)), config, False).batch


_MISPLACED = {
    "dirichlet": ("members", "member_weights"),
    "ensemble": ("concentration", "probabilities", "logits", "confidences"),
    "dirichlet_ensemble": ("probabilities", "logits", "confidences"),
}


def _check_belief(belief: str, posted: dict[str, Any]) -> None:
    """Reject fields that a belief does not have."""
    text = f"with belief {belief}, which does not take it. Leave it out."
    violations = [
        Violation(f"/{name}", "one_of", f"Received {name} {text}")
        for name in _MISPLACED[belief]
        if name in posted
    ]
    if belief != "dirichlet" and "members" not in posted:
        detail = f"Received belief {belief} without members; expected a list of members."
        violations.append(Violation("/members", "missing", detail))
    if violations:
        raise CalibrationInputError(violations)


def _computed(
    posted: dict[str, Any],
    belief: str,
    fitted: float | None,
    config: ModelConfig,
    settings: Settings,
) -> bytes:
    """Return the response as JSON."""
    members = None
    if "members" in posted:
        members = _members(posted["members"], config, settings)
        posted["probabilities"] = posted["members"][0]
    batch = _batch(posted, config, settings)
    if members is not None and len(members[0]) != batch.n:
        detail = "Received members and ratings of different lengths; expected one row per prediction in both."
        raise error("/members", "length", detail)
    given, has_alpha = posted.get("concentration", fitted), belief != "ensemble"
    alpha = _concentration(given, batch.n) if has_alpha else np.inf
    try:
        weights = _weights(posted.get("member_weights"), members)
        belief_of = batch.probabilities if members is None else members
        found = posterior.after_ratings(belief_of, batch.label_counts, alpha, weights)
    except CalibrationInputError as caught:
        sent = "/labels" if "labels" in posted else "/label_counts"
        raise caught.each(lambda each: _moved(each, "/label_counts", sent)) from caught
    result = {
        "model": config.model,
        "belief": belief,
        "concentration": given if has_alpha else None,
        "concentration_source": ("given" if fitted is None else "fitted") if has_alpha else None,
        "n": batch.n,
        "ids": None if batch.ids is None else list(batch.ids),
        "probabilities": np.ascontiguousarray(found.probabilities),
        "disagreement": np.ascontiguousarray(found.disagreement),
        "prior_disagreement": posterior.expected_disagreement(belief_of, alpha, weights),
        "member_weights": None if found.weights is None else np.ascontiguousarray(found.weights.T),
    }
    return orjson.dumps(result, option=orjson.OPT_SERIALIZE_NUMPY)


def _moved(violation: Violation, before: str, after: str) -> Violation:
    return replace(violation, pointer=violation.pointer.replace(before, after, 1))


def _members(value: Any, config: ModelConfig, settings: Settings) -> Numbers:
    """Return the members' probabilities, float64 (members, n, n_classes), each row checked."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MEMBERS:
        detail = f"Received another value; expected a list of 1 to {MAX_MEMBERS} members."
        raise error("/members", "list", detail)
    checked: list[Numbers] = []
    for place, rows in enumerate(value):
        at = f"/members/{place}"
        try:
            checked.append(_batch({"probabilities": rows}, config, settings).probabilities)
        except CalibrationInputError as caught:
            raise caught.each(lambda each, at=at: _moved(each, "/probabilities", at)) from caught  # type: ignore[misc]
        if len(checked[place]) != len(checked[0]):
            detail = f"Received {len(checked[place])} rows; expected {len(checked[0])}, as in the first member."
            raise error(at, "length", detail)
    return np.stack(checked)


def _is_number(value: Any, lowest: float, highest: float) -> bool:
    return type(value) in (int, float) and lowest <= value <= highest


def _concentration(value: Any, n: int) -> Any:
    """Return alpha0 as a number or float64 (n,)."""
    is_list = isinstance(value, list)
    if is_list and len(value) != n:
        detail = f"Received another number of concentrations; expected one number, or {n}: one per prediction."
        raise error("/concentration", "length", detail)
    detail = "Received another value; expected a number above 0 and at most 1e12."
    violations = [
        Violation(f"/concentration/{place}" if is_list else "/concentration", "range", detail)
        for place, each in enumerate(value if is_list else [value])
        if not _is_number(each, 0, MAX_CONCENTRATION) or each == 0
    ]
    if violations:
        raise CalibrationInputError(violations)
    return np.array(value, np.float64) if is_list else float(value)


def _weights(value: Any, members: Numbers | None) -> Numbers | None:
    if value is None or members is None:
        return None
    is_list = isinstance(value, list) and len(value) == len(members)
    if is_list and all(_is_number(each, 0, 1e300) for each in value) and any(value):
        return np.array(value, np.float64)
    detail = (
        f"Received other member_weights; expected {len(members)} numbers of at least 0, not all 0."
    )
    raise error("/member_weights", "range", detail)


class DisagreementMethodsQuery(query_class(MethodsQuery)):  # type: ignore[misc]
    """How concentrations are fitted to posted ratings, and evaluated."""


class DisagreementMethodsBody(RatedBody):
    """Predictions with several ratings each, and features for the head."""

    features: list[list[float]] | None = Field(
        None,
        description="One row per prediction with any number of columns. Default: log-probabilities.",
    )
    parts: list[Literal["fit", "score"]] | None = Field(
        None, description="Per row: `fit` or `score`. Default: two halves of the units, by hash."
    )
    units: list[TextName] | None = Field(None, description="Independent; a unit is not split.")
    weights: list[float] | None = None


class DisagreementMethodsResponse(BaseModel):
    """Methods of predicting disagreement, fitted to one half of the units, evaluated on the other."""

    model_config = ConfigDict(extra="allow")

    model: str
    best: str | None
    reason: str | None
    features: Literal["posted", "log_probabilities"]
    methods: dict[str, Any] | None = Field(
        None,
        description="raw, alpha, temperature, temperature_alpha, joint, head: losses on the validation part.",
    )
    instances: dict[str, list[float]] | None = Field(None, description="`concentration` by row.")


@router.operation(
    "POST /v1/models/{model}/disagreement",
    MapReader,
    success(DisagreementMethodsResponse, "The methods compared"),
    query=DisagreementMethodsQuery,
    takes_=takes("Predictions with ratings, and features", {JSON: DisagreementMethodsBody}),
)
async def compare_calibrations(access: Access) -> Response:
    """Fit concentrations, temperature and a head on features to posted ratings and compare them; nothing is stored."""
    config = await access.usable_config()
    result = await access.computed(_compared, access.query, config, access.settings)
    return Response(result, media_type=JSON)


def _compared(body: Body, query: Declared, config: ModelConfig, settings: Settings) -> bytes:
    """Return the comparison as JSON."""
    posted = _posted(body, DisagreementMethodsBody, settings)
    batch = _batch(posted, config, settings)
    features = _table(posted["features"], batch.n) if "features" in posted else None
    width = batch.n_classes + (0 if features is None else features.shape[1])
    if batch.n * width > MAX_NUMBERS:
        detail = f"Received {batch.n} predictions of {width} numbers; expected at most {MAX_NUMBERS:,} numbers in all. Send fewer rows."
        raise error("", "size", detail)
    parts = posted.get("parts")
    if parts is not None and not isinstance(parts, list):
        detail = "Received another type for parts; expected a list with fit or score for each row."
        raise error("/parts", "list", detail)
    found = compared_ways(batch, features=features, parts=parts, **query.model_dump())
    source = "log_probabilities" if features is None else "posted"
    found = {"model": config.model, "features": source, **found}
    return orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY)


def _table(value: Any, n: int) -> Numbers:
    """Return features as float64 (n, n_features); reject the first row of another length or without numbers."""
    if not isinstance(value, list) or len(value) != n:
        detail = f"Received another number of feature rows; expected {n}: one row per prediction."
        raise error("/features", "length", detail)
    width = len(value[0]) if isinstance(value[0], list) else 0
    for place, row in enumerate(value):
        if not isinstance(row, list) or not width or len(row) != width:
            detail = f"Received a row of another length; expected {width or 'at least one'} numbers, as in the first row."
            raise error(f"/features/{place}", "length", detail)
        if not all(_is_number(each, -MAX_FEATURE, MAX_FEATURE) for each in row):
            detail = f"Received another value; expected numbers from -{MAX_FEATURE:g} to {MAX_FEATURE:g}."
            raise error(f"/features/{place}", "number", detail)
    return np.array(value, np.float64)
