"""Adapters without their frameworks: the extra that an error names, ids, and evaluations of judges."""

from __future__ import annotations

import builtins
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import calibrant.contrib
from calibrant.contrib.evaluations import Evaluation, Judge, of_json, send
from calibrant.contrib.ids import content_id
from calibrant.input.names import IDENTIFIER, fitted

FRAMEWORKS = {
    "bentoml": ("bentoml", "bentoml"),
    "kafka": ("confluent_kafka", "kafka"),
    "mlflow": ("mlflow", "mlflow"),
    "monai": ("torch", "monai"),
    "onnx": ("onnx", "onnx"),
    "opentelemetry": ("google", "telemetry"),
    "sklearn": ("sklearn", "sklearn"),
    "torchmetrics": ("torch", "torchmetrics"),
    "transformers": ("transformers", "transformers"),
}
WITHOUT = {
    "consumer_options",
    "evaluations",
    "extras",
    "ids",
    "numbered_messages",
    "open_inference",
    "onnx_formulas",
    "partition_queue",
}


def test_every_adapter_is_listed_here():
    folder = Path(calibrant.contrib.__file__).parent
    assert {path.stem for path in folder.glob("[a-z]*.py")} == set(FRAMEWORKS) | WITHOUT


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_without_its_framework_an_adapter_names_the_extra(adapter, monkeypatch):
    framework, extra = FRAMEWORKS[adapter]
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **options: Any) -> Any:
        level = options.get("level", arguments[3] if len(arguments) > 3 else 0)
        if not level and name.partition(".")[0] == framework:
            raise ModuleNotFoundError(f"No module named {framework!r}", name=framework)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    for name in (adapter, f"{adapter}_formulas"):
        monkeypatch.delitem(sys.modules, f"calibrant.contrib.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"calibrant\[{extra}\]"):
        importlib.import_module(f"calibrant.contrib.{adapter}")


def test_ids_fit_the_rule_and_equal_content_has_one():
    for name in ("chatcmpl-1", "a/b", "ä" * 200, ""):
        assert IDENTIFIER.fullmatch(fitted(name))
    assert fitted("a/b") != fitted("a:b")
    rows = [["r1", 0.5, 3]]
    assert content_id("otel", rows) == content_id("otel", [["r1", 0.5, 3]])
    assert content_id("otel", rows) != content_id("otel", [["r1", 0.5, 4]])
    assert IDENTIFIER.fullmatch(content_id("otel.labels", rows))


class Client:
    """Records what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []

    def model(self, name: str) -> Any:
        client = self

        class Model:
            def send(self, **columns: Any) -> None:
                client.sent.append((name, "send", columns))

            def label(self, ids: Any, labels: Any, **options: Any) -> None:
                client.sent.append((name, "label", (ids, labels, options)))

        return Model()


def test_scores_become_probabilities_and_people_labels():
    judge = Judge("helpful", "judge", low=1, high=5, human="people")
    given = [
        Evaluation("helpful", 4.0, "very good", "r1", 1_000),
        Evaluation("helpful", 1, None, "r/2", 2_000),
        Evaluation("people", 1.0, None, "r1", 3_000),
        Evaluation("other", 1.0, None, "r1", 3_000),
    ]
    client = Client()
    assert send(client, [judge], given).sent == 3
    (_, _, columns), (_, _, (ids, labels, _)) = client.sent
    assert columns["probabilities"].tolist() == [0.75, 0.0]
    assert columns["ids"] == ["r1", fitted("r/2")]
    assert (ids, labels) == (["r1"], [1])
    assert str(columns["event_times"].dtype) == "datetime64[us]"
    again = Client()
    send(again, [judge], given)
    assert again.sent[0][2]["batch_id"] == columns["batch_id"]


@pytest.mark.parametrize(
    ("evaluation", "reason"),
    [
        (Evaluation("helpful", 5.1, None, "r1", 0), "expected 1 to 5"),
        (Evaluation("helpful", float("nan"), None, "r1", 0), "expected 1 to 5"),
        (Evaluation("helpful", None, "good", "r1", 0), "Received score None"),
        (Evaluation("helpful", 2, None, None, 0), "without gen_ai.response.id"),
        (Evaluation("people", 0.5, None, "r1", 0), "expected 0 or 1"),
    ],
)
def test_events_that_cannot_be_used_are_counted_with_the_reason(evaluation, reason):
    judge = Judge("helpful", "judge", low=1, high=5, human="people")
    client = Client()
    outcome = send(client, [judge], [evaluation])
    assert (outcome.sent, outcome.rejected) == (0, 1) and reason in (outcome.last_error or "")
    assert not client.sent


def test_labels_of_people_are_declared_and_a_scale_has_two_ends():
    judge = Judge("helpful", "judge", human="people", labels={"good": 1})
    outcome = send(Client(), [judge], [Evaluation("people", 1, "bad", "r1", 0)])
    assert outcome.rejected == 1 and "expected good" in (outcome.last_error or "")
    with pytest.raises(ValueError, match="expected low < high"):
        Judge("helpful", "judge", low=1, high=1)


def test_only_evaluation_events_of_an_export_are_read():
    def record(event: str, *attributes: tuple[str, Any]) -> dict[str, Any]:
        listed = [{"key": key, "value": value} for key, value in attributes]
        span = {"traceId": "AB", "spanId": "CD"}
        return {"eventName": event, "attributes": listed, "timeUnixNano": "7"} | span

    name = ("gen_ai.evaluation.name", {"stringValue": "helpful"})
    score = ("gen_ai.evaluation.score.value", {"intValue": "4"})
    records = [
        record("gen_ai.evaluation.result", name, score),
        record("gen_ai.evaluation.result", score),
        record("another", name, score),
    ]
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    assert list(of_json(document)) == [Evaluation("helpful", 4.0, None, "ab-cd", 7)]
