"""Commands of advice and alarms, on the responses of a fake service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Self

import pytest

from calibrant.client.operations import Operation
from tests.cli.command import Finished

Run = Callable[..., Finished]
MAPS = {"method": "POST", "path": "/v1/models/ct/maps", "body": {"method": "platt", "from": "2026-11-21T00:00:00Z"}}  # fmt: skip
ALARM = {"state": "open", "raised_at": "2026-11-29T15:52:11.390017Z", "start_of_change": "2026-11-21T00:00:00Z", "acknowledged_by": None}  # fmt: skip
ALARMS = [
    {"id": "al_1", "model": "ct", "slice": None, "title": "calibration drift", **ALARM},
    {"id": "al_2", "model": "ct", "slice": "site:B", "title": "calibration drift", **ALARM},
    {"id": "al_3", "model": "mr", "slice": None, "title": "rater shift", **ALARM},
]


class FakeService:
    """Stores the requests that change something, and returns the given documents."""

    def __init__(self, responses: dict[str, Any]) -> None:
        self.responses = responses
        self.sent: list[tuple[str, str, Any]] = []

    def __call__(self, _url: str, _key: str | None) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def run(self, operation: Operation) -> Any:
        """Return the response of an operation."""
        if operation.method != "GET":
            self.sent.append((operation.method, operation.path, json.loads(operation.body)))
        return self.responses[operation.path]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    found = FakeService(
        {
            "/v1/alarms": {"alarms": ALARMS, "next": None},
            **{f"/v1/alarms/al_{k}/acknowledge": {} for k in (1, 2, 3)},
            "/v1/models/ct/events": {"events": [], "next": None},
            "/v1/models/ct/maps": {"version": 4, "method": "platt", "n": 240},
        }
    )
    monkeypatch.setattr("calibrant.cli.connection.Client", found)
    return found


def advise(fake: FakeService, step: Any) -> None:
    """Let the drift of the model recommend a request."""
    words = {"word": "off", "sentence": "A sentence."}
    advice = {"action": "slope_intercept", "reason": "Correct it.", "next": step}
    names = ("calibration", "change", "scores")
    drift = {**dict.fromkeys(names, words), "status": "alarm", "recommendation": advice}
    fake.responses["/v1/models/ct/drift"] = drift


def test_drift_ends_with_the_commands_that_carry_out_the_advice(
    fake: FakeService, run: Run
) -> None:
    advise(fake, MAPS)
    lines = run("drift", "ct").out.splitlines()
    assert lines[-2:] == [
        "to fit this map: calibrant maps fit ct --recommended",
        "if the change was expected: calibrant alarms acknowledge ct",
    ]
    advise(fake, {"method": "POST", "path": "/v1/models/ct/labels", "body": None})
    assert run("drift", "ct").out.splitlines()[-2:] == ["what to do: Correct it.", lines[-1]]


def test_the_recommended_map_is_fitted(fake: FakeService, run: Run) -> None:
    advise(fake, MAPS)
    found = run("maps", "fit", "ct", "--recommended")
    assert fake.sent == [("POST", "/v1/models/ct/maps", MAPS["body"])], found.error
    assert "calibrant maps promote ct 4 --reason" in " ".join(found.out.split())
    run("maps", "fit", "ct", "--method", "vector")
    assert fake.sent[-1][2] == {"method": "vector"}


def test_advice_without_a_map_is_an_error(fake: FakeService, run: Run) -> None:
    advise(fake, None)
    found = run("maps", "fit", "ct", "--recommended")
    assert (found.code, fake.sent) == (1, [])
    assert "No map is recommended. Correct it." in found.error


def test_alarms_have_titles_and_times_to_the_minute(fake: FakeService, run: Run) -> None:
    for arguments in ([], ["ct"], ["list", "ct", "--state", "open"]):
        found = run("alarms", *arguments).out
        words = " ".join(found.split())
        assert "calibration drift" in words and "rater shift" in words
        assert "2026-11-29 15:52" in words and ":11.39" not in words
        assert "What to do about ct: calibrant drift ct" in words


@pytest.mark.parametrize(
    ("named", "expected"), [("ct", ["al_1", "al_2"]), ("al_3", ["al_3"]), ("nobody", [])]
)
def test_alarms_of_a_model_or_one_are_acknowledged(
    named: str, expected: list[str], fake: FakeService, run: Run
) -> None:
    found = run("alarms", "acknowledge", named, "--note", "a new scanner")
    paths = [f"/v1/alarms/{each}/acknowledge" for each in expected]
    assert fake.sent == [("POST", path, {"note": "a new scanner"}) for path in paths]
    assert found.code == (not expected), found.error
    assert ("nobody has no open alarm." in found.error) == (named == "nobody")
    assert found.out.count("acknowledged calibration drift") == (
        len(expected) if named == "ct" else 0
    )


def test_the_list_of_models_begins_with_their_status(fake: FakeService, run: Run) -> None:
    rows = [{"model": name, "status": status, "label_horizon": "P7D"} for name, status in (("a", "insufficient_data"), ("b", "alarm"))]  # fmt: skip
    fake.responses["/v1/models"] = {"models": rows, "next": None}
    lines = run("models").out.splitlines()
    assert lines[0].split()[:2] == ["Model", "Status"]
    assert [line.split()[:2] for line in lines[1:]] == [["b", "Alarm"], ["a", "Undecided"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["models", "--tag", "owner=ann"], "Received --tag owner=ann; expected KEY:VALUE, such as owner:ann."),
        (["set", "--all", "--tag", "owner=ann", "alarm.tolerance=.03"], "expected KEY:VALUE, such as owner:ann."),
        (["set", "--tag", "owner:ann", "alarm.tolerance=.03"], "Received --tag without --all; expected both"),
        (["set", "--all", "--tag", "owner:bob", "alarm.tolerance=.03"], "No model has the tag owner:bob."),
        (["set", "--all", "alarm.tolerance=.03"], "There is no model."),
        (["models", "--tag", "a:b", "--tag", "c:d"], "Received --tag 2 times; expected it once."),
        (["score", "p.npy", "-o", "a.html", "-o", "b.json"], "Received --output / -o 2 times; expected it once."),
        (["keys", "create", "--name", "a", "--name", "b"], "Received --name 2 times; expected it once."),
        (["score", "p.npy", "--class", "malignant"], "Received 'malignant'; expected an integer. Of images: number, as in the masks"),
    ],
)  # fmt: skip
def test_options_that_are_not_right_say_what_to_send(
    arguments: list[str], expected: str, fake: FakeService, run: Run
) -> None:
    fake.responses["/v1/models"] = {"models": [], "next": None}
    found = run(*arguments)
    assert found.code > 0 and fake.sent == []
    words = re.sub(r"[\s│]+", " ", found.error)
    assert expected in words
