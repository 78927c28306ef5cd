"""Posterior class probabilities, given the ratings of some raters."""

from typing import Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.raters import posterior
from calibrant.results.disagreement import PosteriorQuery, disagreement
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import TextName
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.columns import posted_columns
from calibrant_server.service.ingest.model_rules import checked_batch
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, object_of, reject_unknown
from calibrant_server.service.ingest.schemas import Label
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.reads.operations import Access, MapReader, operation
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.service import ReadQuery, ReadService
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.declared import query_class, query_for
from calibrant_server.workers.store.model_config import ModelConfig

router = APIRouter(tags=["raters"], default_response_class=Response)

MAX_MEMBERS = 1000
POSTERIOR_COLUMNS = ("probabilities", "logits", "confidences", "labels", "label_counts", "ids")
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class PosteriorBody(BaseModel):
    """Predictions with ratings; `members` instead of one row per prediction makes an ensemble."""

    model_config = ConfigDict(extra="forbid")

    probabilities: list[list[float]] | None = Field(
        None, description="Rows sum to 1 within the rounding of their values."
    )
    logits: list[list[float]] | None = None
    confidences: list[float] | None = Field(None, description="Probability of class 1.")
    members: list[list[list[float]]] | None = Field(
        None, description="Probabilities by member, prediction and class."
    )
    member_weights: list[float] | None = Field(
        None, description="Prior weights of the members. Default: equal."
    )
    labels: list[Label] | None = Field(
        None, description="A class, or one per rater; null for none."
    )
    label_counts: list[list[int]] | None = Field(None, description="Ratings by class.")
    concentration: float | list[float] | None = Field(
        None, description="alpha0, one for all or one per prediction. Default: the fitted one."
    )
    ids: list[TextName] | None = None


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


@operation(
    router,
    "POST /v1/models/{model}/posterior",
    "computePosterior",
    MapReader,
    {
        200: success(PosteriorResponse, "Probabilities given the ratings"),
        **problems(408, 413, 415, 422),
    },
    query=PosteriorParameters,
    takes_=takes("Predictions with ratings", json=PosteriorBody),
)
async def compute_posterior(access: Access) -> Response:
    """Return class probabilities of posted predictions given their ratings; nothing is stored."""
    query, settings, config = access.query, access.settings, await access.usable_config()
    posted = await access.computed(_posted, settings)
    belief = query.belief or ("ensemble" if "members" in posted else "dirichlet")
    _check_belief(belief, posted)
    fitted = None
    if belief != "ensemble" and "concentration" not in posted:
        fitted = await _fitted(access.reads, config, query)
    result = await in_thread(_computed, posted, belief, fitted, config, settings)
    return Response(result, media_type=JSON)


async def _fitted(reads: ReadService, config: ModelConfig, query: PosteriorParameters) -> float:
    """Return the model's alpha0 of the window."""
    read_query = ReadQuery(
        query_for(disagreement, penalty=query.penalty, ci=query.ci), config, query
    )
    found = orjson.loads((await reads.result(read_query)).body)
    if found.get("concentration") is None:
        detail = f"No concentration is given and none can be fitted: {found.get('reason') or 'no ratings'}."
        raise CalibrationInputError.at("/concentration", "not_fitted", detail)
    return float(found["concentration"]["value"])


def _posted(body: Body, settings: Settings) -> dict[str, Any]:
    """Return the fields of a body that are there."""
    document = object_of(read_json(body.data, settings.max_rows * 3 + 100))
    reject_unknown(document, tuple(PosteriorBody.model_fields))
    return {name: value for name, value in document.items() if value is not None}


def _check_belief(belief: str, posted: dict[str, Any]) -> None:
    """Reject fields that a belief does not have."""
    misplaced = {
        "dirichlet": ("members", "member_weights"),
        "ensemble": ("concentration", "probabilities", "logits", "confidences"),
        "dirichlet_ensemble": ("probabilities", "logits", "confidences"),
    }[belief]
    violations = [
        Violation(
            f"/{name}",
            "one_of",
            f"Received {name} with belief {belief}, which does not take it. Leave it out.",
        )
        for name in misplaced
        if name in posted
    ]
    if belief != "dirichlet" and "members" not in posted:
        violations.append(
            Violation(
                "/members",
                "missing",
                f"Received belief {belief} without members; expected a list of members.",
            )
        )
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
    members = _members(posted["members"], config, settings) if "members" in posted else None
    columns = {name: posted[name] for name in POSTERIOR_COLUMNS if name in posted}
    if members is not None:
        columns["probabilities"] = posted["members"][0]
    batch = checked_batch(ParsedBatch(posted_columns(columns, settings)), config, False).batch
    if members is not None and len(members[0]) != batch.n:
        raise CalibrationInputError.at(
            "/members",
            "length",
            "Received members and ratings of different lengths; expected one row per prediction in both.",
        )
    given = fitted if fitted is not None else posted.get("concentration")
    alpha = None if belief == "ensemble" else _concentration(given, batch.n)
    weights = _weights(posted.get("member_weights"), members)
    try:
        found, before = _belief(belief, batch, members, weights, alpha)
    except CalibrationInputError as error:
        raise CalibrationInputError(
            [_as_sent(each, posted) for each in error.violations]
        ) from error
    result = {
        "model": config.model,
        "belief": belief,
        "concentration": given if belief != "ensemble" else None,
        "concentration_source": None
        if belief == "ensemble"
        else "given"
        if fitted is None
        else "fitted",
        "n": batch.n,
        "ids": None if batch.ids is None else list(batch.ids),
        "probabilities": np.ascontiguousarray(found.probabilities),
        "disagreement": np.ascontiguousarray(found.disagreement),
        "prior_disagreement": np.ascontiguousarray(before),
        "member_weights": None if found.weights is None else np.ascontiguousarray(found.weights.T),
    }
    return orjson.dumps(result, option=orjson.OPT_SERIALIZE_NUMPY)


def _as_sent(violation: Violation, posted: dict[str, Any]) -> Violation:
    """Return a violation that points at the ratings as they were sent, in lists or counts."""
    if "labels" not in posted:
        return violation
    return Violation(
        violation.pointer.replace("/label_counts", "/labels", 1), violation.rule, violation.detail
    )


def _belief(
    belief: str, batch: Batch, members: Numbers | None, weights: Numbers | None, alpha: Any
) -> tuple[posterior.Posterior, Numbers]:
    """Return the distribution after the ratings, and the disagreement that it predicted before them."""
    ratings = batch.label_counts
    if belief == "dirichlet":
        p = batch.probabilities
        after = posterior.dirichlet_posterior(p, alpha, ratings)
        return after, posterior.dirichlet_disagreement(p, alpha)
    assert members is not None
    if belief == "ensemble":
        after = posterior.ensemble_posterior(members, ratings, weights)
        return after, posterior.ensemble_disagreement(members, weights)
    after = posterior.dirichlet_ensemble_posterior(members, alpha, ratings, weights)
    return after, posterior.dirichlet_ensemble_disagreement(members, alpha, weights)


def _members(value: Any, config: ModelConfig, settings: Settings) -> Numbers:
    """Return the members' probabilities, float64 (members, n, n_classes), each row checked."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MEMBERS:
        raise CalibrationInputError.at(
            "/members",
            "list",
            f"Received another value; expected a list of 1 to {MAX_MEMBERS} members.",
        )
    checked = []
    for place, rows in enumerate(value):
        try:
            columns = posted_columns({"probabilities": rows}, settings)
            checked.append(checked_batch(ParsedBatch(columns), config, False).batch.probabilities)
        except CalibrationInputError as error:
            raise CalibrationInputError(
                [
                    Violation(
                        each.pointer.replace("/probabilities", f"/members/{place}", 1),
                        each.rule,
                        each.detail,
                    )
                    for each in error.violations
                ]
            ) from error
        if len(checked[place]) != len(checked[0]):
            detail = f"Received {len(checked[place])} rows; expected {len(checked[0])}, as in the first member."
            raise CalibrationInputError.at(f"/members/{place}", "length", detail)
    return np.stack(checked)


def _concentration(value: Any, n: int) -> Any:
    """Return alpha0 as a number or float64 (n,)."""
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and len(value) != n:
        detail = f"Received another number of concentrations; expected one number, or {n}: one per prediction."
        raise CalibrationInputError.at("/concentration", "length", detail)
    bad = [
        place
        for place, each in enumerate(values)
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 < each <= 1e12
    ]
    if bad:
        detail = "Received another value; expected a number above 0 and at most 1e12."
        raise CalibrationInputError(
            [
                Violation(
                    f"/concentration/{place}" if isinstance(value, list) else "/concentration",
                    "range",
                    detail,
                )
                for place in bad
            ]
        )
    return np.array(value, np.float64) if isinstance(value, list) else float(value)


def _weights(value: Any, members: Numbers | None) -> Numbers | None:
    if value is None or members is None:
        return None
    fits = isinstance(value, list) and len(value) == len(members)
    if fits and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        weights = np.array(value, np.float64)
        if (weights >= 0).all() and np.isfinite(weights).all() and weights.sum() > 0:
            return weights
    detail = (
        f"Received other member_weights; expected {len(members)} numbers of at least 0, not all 0."
    )
    raise CalibrationInputError.at("/member_weights", "range", detail)
