"""The two words of a model with the shift of its scores, and the evidence of each cohort. The engine computes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calibrant.core.errors import CalibrationInputError
from calibrant.drift.cohort_tables import OWN_SCORE
from calibrant.input.names import MAX_LENGTH
from calibrant.results.base import Result, may_say, says
from calibrant.results.models import Model, class_index
from calibrant.results.queries import costly_parts, in_order, parts_of
from calibrant.results.reads import Query, State, read
from calibrant.results.recommendation import Recommendation
from calibrant.results.tables import Table, Values

RATER = "rater:"
EVIDENCE, RECENT = "evidence", "recent"
PARTS = (EVIDENCE, RECENT)
# The last days of a window, which are compared with the rest.
CURRENT_S = 7 * 86_400
# Accumulators from which the advice after a change is computed.
CHANGED = (
    "classes", "counts", "histograms", "positive", "replicates", "sample", "temperature", "top_label", "units",
)  # fmt: skip
COHORTS = Table(
    {
        "from": "time", "to": "time", "evidence_log10": "number", "threshold_log10": "number",
        "over_threshold": "flag", "n_units": "number", "mean_confidence": "number", "accuracy": "number",
        "n_predictions": "integer", "n_labelled": "integer",
    },
    lambda found: _rows(found),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DriftHistoryQuery(Query):
    """Which detector."""

    scope: str | None = says(
        "class:NAME where the alarm watches classes, rater:NAME for one rater's own detector.",
        None,
        max_length=len(RATER) + MAX_LENGTH,
    )

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        scope = self.scope
        if scope is None or scope == OWN_SCORE or scope.startswith(RATER):
            return {}
        found = f"class:{class_index(scope.removeprefix('class:'), model, '/scope')}"
        _reject_unwatched(scope, found, getattr(model, "alarm", {}).get("bets"))
        return {"scope": found}


def _reject_unwatched(received: str, scope: str, bets: Any) -> None:
    """Reject a class without a detector, which would wait for its first cohort forever.

    bets : what the alarm watches: places of classes, else the score
    """
    classes = bets if isinstance(bets, list | tuple) else ()
    watched = [f"class:{each}" for each in classes]
    if scope in watched:
        return
    known = ", ".join(watched) or "score"
    detail = (
        f"Received scope {received!r}; expected what the alarm of this model watches: {known}. To watch classes, name them in the "
        'setting bets: PATCH the model with {"alarm": {"bets": ["CLASS"]}}.'
    )
    raise CalibrationInputError.at("/scope", "not_watched", detail)


@dataclass(frozen=True, kw_only=True)
class DriftQuery(DriftHistoryQuery):
    """Which detector, and which parts of the response."""

    include: str | None = costly_parts(PARTS)

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        return {**super().resolved(model, given), "include": in_order(self.include, PARTS)}

    @property
    def included(self) -> list[str]:
        """The requested parts."""
        return parts_of(self.include)


@dataclass(frozen=True, kw_only=True, repr=False)
class CalibrationWord(Result):
    """Calibration compared with the tolerance."""

    word: Literal["good", "off", "unknown"]
    sentence: str
    value: float | None = says(
        "The limit that decides: if `off` the lower limit of the error, else its upper limit."
    )
    allowed: float = says("The tolerance.")
    error: float | None = says("Calibration error of the recent cohorts.")
    expected_at_most: float | None = says(
        "Error that a calibrated model with the same data exceeds in one of 20 cases."
    )
    n: float = says("Labelled units of the recent cohorts.")
    n_more: int | None = says(
        "Further labelled units that would decide if the error stays as it is; of these, only as many count as the last 28 cohorts have."
    )
    coverage: float | None = says(
        "Labelled share of the predictions of the last 28 cohorts, within the label horizon."
    )
    coverage_fell: bool = says("Whether the labelled share fell by 20 points.")
    bounds: list[float] | None = says(
        "The error if all unlabelled predictions had the least or the most favourable labels; "
        "null if nearly all have labels."
    )
    since: str | None = says(
        "The cohort at which the word turned: it follows the start of a change (`change.start`), because a word has to hold on 2 cohorts."
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class ChangeWord(Result):
    """The model compared with its own past."""

    word: Literal["none_seen", "changed", "not_armed", "no_recent_predictions", "no_recent_labels"]
    sentence: str
    n: float = says("Labelled units since the change, or of all cohorts compared.")
    smallest_change: float | None = says(
        "Smallest change of the rate of labels, in [0, 1], that would show within 7 cohorts: in either direction, or in the one that "
        "the sentence names."
    )
    start: str | None = says("The first cohort of the change.")
    earliest: str | None
    latest: str | None
    armed_at: str | None = says(
        "From when 5 points or a temperature of 1.6 would show; null if they do, or if it needs more labels a day or longer cohorts "
        "(setting `alarm.bucket`)."
    )
    acknowledged_at: str | None = says("When the last change was acknowledged.")


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoresWord(Result):
    """The distribution of the scores, labelled or not."""

    word: Literal["shifted", "none_seen", "unknown"]
    sentence: str
    value: float | None = says("Population stability index.")
    limit: float | None
    expected_accuracy: float | None = says(
        "Accuracy to expect of the last 7 days' predictions without a label, by their scores and the labels of these days, or of "
        "the window if these are fewer than 200; null with an open change. It holds if, at a given score, labels are missing by chance."
    )
    expected_interval: list[float] | None = says("95 % interval of that accuracy.")
    n_unlabelled: float | None = says("Units that it describes.")


@dataclass(frozen=True, kw_only=True, repr=False)
class Drift(Result):
    """The two words, the scores, the size of a change and what to do; with `include=evidence` what they depend on."""

    status: Literal["insufficient_data", "ok", "watch", "alarm"] = says("Derived from the words.")
    calibration: CalibrationWord
    change: ChangeWord
    scores: ScoresWord
    effect: dict[str, Any] | None = says(
        "Accuracy, or of two classes the rate of positive labels, with mean confidence and temperature before and after an open change."
    )
    title: str | None = says(
        "Subject of an alarm: model drift, rater shift with the raters, or calibration drift.",
    )
    alarm: str | None = says("Id of the alarm.")
    map_version: str | None = says("The active calibration map.")
    recommendation: Recommendation
    recent: list[dict[str, Any]] | None = may_say(
        "The last 120 cohorts: −log10 of the p-value of a change, with that of its level.",
    )
    bins: list[dict[str, Any]] | None = may_say()
    bins_since_change: list[dict[str, Any]] | None = may_say()
    raters: list[dict[str, Any]] | None = may_say("Named raters with a detector of their own.")
    rater_or_model: dict[str, Any] | None = may_say(
        "Whether the model or its raters changed, if raters are named."
    )
    units: dict[str, Any] | None = may_say(
        "Units in several cohorts: `first_contacts_only`, with the number left out; "
        "or `units_unknown`: no false-alarm rate is claimed.",
    )
    detector: dict[str, Any] | None = may_say()
    detector_reason: str | None = may_say()
    slices: list[dict[str, Any]] | None = may_say(
        "The other detectors: flagged ones first, then by `calibration`. `value` of `off` is a lower limit of the error, of other words an upper one.",
    )
    settings: list[dict[str, Any]] | None = may_say(
        "Changes of tolerance and label horizon, each with its time, author and reason."
    )

    def __repr__(self) -> str:
        words = ", ".join(
            f"{name}={getattr(self, name).word!r}" for name in ("calibration", "change")
        )
        return (
            f"Drift(status={self.status!r}, {words}, recommendation={self.recommendation.action!r})"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Cohort(Result):
    """Evidence of one sealed cohort."""

    cohort: dict[str, str]
    evidence_log10: float = says("−log10 of the p-value of a change for the worse.")
    threshold_log10: float = says("−log10 of the level.")
    over_threshold: bool
    n_units: float
    mean_confidence: float | None
    accuracy: float | None
    n_predictions: int
    n_labelled: int


@dataclass(frozen=True, kw_only=True, repr=False)
class DriftHistory(Result):
    """Cohorts, oldest first."""

    bucket: str
    kept_cohorts: int = says("Number of the latest cohorts that are stored.")
    cohorts: list[Cohort]


def _rows(found: Values) -> Iterable[Values]:
    """Yield each cohort."""
    return ({**each, **each["cohort"]} for each in found["cohorts"])


@read(
    "drift",
    tag="drift",
    response="The words with their sentences, or a figure",
    drawn={"include": EVIDENCE},
    needs={
        "panes": "sides",
        "last_s": CURRENT_S,
        "alarm": True,
        "changed": CHANGED,
    },
)
def drift(state: State, query: DriftQuery) -> Drift:
    """Return whether the model is calibrated and whether it changed, each in a word and a sentence; as JSON, SVG or PNG."""
    raise NotImplementedError("`calibrant_server.workers.queries.kinds.drift` computes it")


@read(
    "drift/history",
    called="listDriftHistory",
    tag="drift",
    response="The cohorts of the window",
    table=COHORTS,
    needs={"panes": "none", "alarm": True},
)
def drift_history(state: State, query: DriftHistoryQuery) -> DriftHistory:
    """Return the evidence of a change after each sealed cohort of the window; as JSON or as a table."""
    raise NotImplementedError("`calibrant_server.workers.queries.kinds.drift_history` computes it")
