"""Evaluations of generative models, to measure how well judges are calibrated.

A judge is a model that scores responses. Each of its evaluations is a prediction: the score, on a declared scale, is the
probability of class 1. A person's evaluation of the same response is its label. Score labels of judges are their own wording
and are never used as labels. `calibrant.contrib.opentelemetry` receives such evaluations. Source:
`open-telemetry/semantic-conventions-genai`, `docs/gen-ai/gen-ai-events.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant.contrib.ids import content_id
from calibrant.input.names import fitted

EVENT = "gen_ai.evaluation.result"
NAME, SCORE, LABEL = (
    f"gen_ai.evaluation.{each}" for each in ("name", "score.value", "score.label")
)
RESPONSE_ID = "gen_ai.response.id"


@dataclass(frozen=True)
class Judge:
    """How events of one judge, and of the people who check it, are read.

    Parameters
    ----------
    name : `gen_ai.evaluation.name` of the judge's events
    model : of the service, declared with two classes
    low, high : score of probability 0 and of probability 1
    human : `gen_ai.evaluation.name` of the events of people; None if there are none
    labels : class of each `score.label` of people. Default: the score is the class, 0 or 1
    """

    name: str
    model: str
    low: float = 0.0
    high: float = 1.0
    human: str | None = None
    labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"Received low={self.low}, high={self.high}; expected low < high.")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation event.

    Attributes
    ----------
    id : of the response, or of the span; None if the event has neither
    time_ns : since 1970
    """

    name: str
    score: float | None
    label: str | None
    id: str | None
    time_ns: int


@dataclass
class Outcome:
    """Number of events that were sent, rejected and of no declared name; and why the last one was rejected."""

    sent: int = 0
    rejected: int = 0
    ignored: int = 0
    last_error: str | None = None

    def reject(self, reason: str) -> None:
        """Count an event that cannot be used."""
        self.rejected += 1
        self.last_error = reason


def send(client: Any, judges: Iterable[Judge], evaluations: Iterable[Evaluation]) -> Outcome:
    """Send events as predictions and labels. Equal events make equal batches, which count once.

    Raises
    ------
    ClientError
        The service could not be reached, or rejected a batch.
    """
    outcome = Outcome()
    predictions: dict[str, list[tuple[str, float, int]]] = {}
    labels: dict[str, list[tuple[str, int]]] = {}
    by_judge: dict[str, Judge] = {}
    by_human: dict[str, Judge] = {}
    for judge in judges:
        by_judge[judge.name] = judge
        if judge.human is not None:
            by_human[judge.human] = judge
    for each in evaluations:
        try:
            if each.name in by_judge:
                judge = by_judge[each.name]
                row = (_id(each), _probability(judge, each), each.time_ns)
                predictions.setdefault(judge.model, []).append(row)
            elif each.name in by_human:
                judge = by_human[each.name]
                rating = (_id(each), _class(judge, each))
                labels.setdefault(judge.model, []).append(rating)
            else:
                outcome.ignored += 1
        except ValueError as error:
            outcome.reject(str(error))
    for model, rows in predictions.items():
        ids, scores, times = (list(column) for column in zip(*rows, strict=True))
        client.model(model).send(
            probabilities=np.array(scores),
            ids=ids,
            event_times=np.array(times, "datetime64[ns]").astype("datetime64[us]"),
            batch_id=content_id("otel", rows),
        )
        outcome.sent += len(rows)
    for model, rated in labels.items():
        ids, classes = (list(column) for column in zip(*rated, strict=True))
        client.model(model).label(ids, classes, batch_id=content_id("otel.labels", rated))
        outcome.sent += len(rated)
    return outcome


def of_json(document: Mapping[str, Any]) -> Iterator[Evaluation]:
    """Yield the evaluations in an export of logs, as OTLP writes it in JSON."""
    records = (
        record
        for resource in document.get("resourceLogs", [])
        for scope in resource.get("scopeLogs", [])
        for record in scope.get("logRecords", [])
    )
    for record in records:
        if record.get("eventName") == EVENT:
            attributes = {
                each["key"]: _json_value(each["value"]) for each in record.get("attributes", [])
            }
            has_span = record.get("traceId") and record.get("spanId")
            span = f"{record['traceId']}-{record['spanId']}".lower() if has_span else None
            at = int(record.get("timeUnixNano") or record.get("observedTimeUnixNano") or 0)
            found = evaluation(attributes, span, at)
            if found is not None:
                yield found


def _json_value(value: Mapping[str, Any]) -> Any:
    kind, found = next(iter(value.items()), ("", None))
    return int(found) if kind == "intValue" and found is not None else found


def _id(each: Evaluation) -> str:
    if each.id is None:
        raise ValueError(f"Received {each.name} without {RESPONSE_ID} and span; expected one.")
    return fitted(each.id)


def _probability(judge: Judge, each: Evaluation) -> float:
    if each.score is None or not judge.low <= each.score <= judge.high:
        raise ValueError(
            f"Received score {each.score} of {each.name}; expected {judge.low:g} to {judge.high:g}."
        )
    return (each.score - judge.low) / (judge.high - judge.low)


def _class(judge: Judge, each: Evaluation) -> int:
    if judge.labels:
        if each.label is None or each.label not in judge.labels:
            expected = ", ".join(judge.labels)
            raise ValueError(f"Received label {each.label!r} of {each.name}; expected {expected}.")
        return judge.labels[each.label]
    if each.score not in (0.0, 1.0):
        raise ValueError(f"Received score {each.score} of {each.name}; expected 0 or 1.")
    return int(each.score)


def evaluation(attributes: Mapping[str, Any], span: str | None, time_ns: int) -> Evaluation | None:
    """Return the evaluation in the attributes of an event; None if it has no name."""
    name, score, label = (attributes.get(each) for each in (NAME, SCORE, LABEL))
    if not isinstance(name, str):
        return None
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    given = attributes.get(RESPONSE_ID) or span
    return Evaluation(
        name,
        float(score) if is_number and score is not None else None,
        label if isinstance(label, str) else None,
        None if given is None else str(given),
        time_ns,
    )
