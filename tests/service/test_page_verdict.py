"""The verdict on the page of a model: a direction is stated only where chance does not explain the error."""

import pytest

from calibrant_server.service.pages.api import ApiResponse
from calibrant_server.service.pages.exceptions import exception_texts
from calibrant_server.service.pages.numbers import before_change, before_map, restart, verdict

RELIABILITY = {"scope": "top_label", "mean_confidence": 0.745, "accuracy": 0.676}
ERROR = {"value": 0.0692, "interval": [0.05, 0.09], "null_mean": 0.016, "null_q95": 0.023}


def sentence(**changes) -> str:
    return verdict({"metrics": {"ece": ERROR | changes}}, RELIABILITY)


def test_an_error_beyond_chance_has_a_direction():
    found = sentence(above_null=True)
    assert found.startswith("Overconfident on average: mean confidence 74.5 %, accuracy 67.6 %.")


@pytest.mark.parametrize(
    "changes", [{"above_null": False}, {"above_null": None}, {"null_q95": None, "null_mean": None}]
)
def test_an_error_that_chance_may_explain_has_none(changes):
    found = sentence(**changes)
    assert found.startswith("Expected calibration error 0.069 (95 % interval 0.050 to 0.090).")


def test_without_an_error_the_reason_is_stated():
    assert sentence(value=None, reason="no_labels").startswith(
        "The calibration error is not known."
    )


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ((0.1, -0.1), "too extreme"),
        ((-0.1, 0.1), "too near one half"),
        ((0.1, 0.1), "too low"),
        ((-0.1, -0.08), "too high"),
    ],
)
def test_probabilities_of_one_class_have_a_tendency(gaps, expected):
    """Of equal means, nothing was said but two nearly equal numbers."""
    table = [
        {"mean_confidence": score, "weight": 50.0, "gap": gap}
        for score, gap in zip((0.2, 0.8), gaps, strict=True)
    ]
    reliability = RELIABILITY | {"scope": "positive", "table": table}
    found = verdict({"metrics": {"ece": ERROR | {"above_null": True}}}, reliability)
    assert f"Probabilities are {expected}" in found


def test_a_tendency_within_chance_is_not_stated():
    """60.4 % against 59.9 % in 1,200 labels is chance; so are gaps that cancel in few labels."""
    table = [{"mean_confidence": 0.604, "weight": 1200.0, "n_effective": 1200.0, "gap": -0.005}]
    error = {"metrics": {"ece": ERROR | {"above_null": True}}}
    found = verdict(error, RELIABILITY | {"scope": "positive", "table": table})
    assert found.startswith("Expected calibration error")


def test_the_numbers_of_a_tendency_show_it():
    """Means of 50.2 % and 49.7 % say nothing about probabilities that are too extreme."""
    rows = ((0.1, 0.1), (0.9, -0.1))
    table = [{"mean_confidence": p, "weight": 600.0, "gap": gap} for p, gap in rows]
    error = {"metrics": {"ece": ERROR | {"above_null": True}}}
    found = verdict(error, RELIABILITY | {"scope": "positive", "table": table})
    assert found.startswith(
        "Probabilities are too extreme: below one half the mean is 10 % and the observed frequency 20 %; above it 90 % and 80 %."
    )


@pytest.mark.parametrize(
    ("window_from", "first_at", "says"),
    [
        ("1970-01-01T00:00:00Z", "2026-05-01T00:00:00Z", True),
        ("1970-01-01T00:00:00Z", "2026-05-20T00:00:00Z", False),
        ("2026-05-20T00:00:00Z", "2026-05-01T00:00:00Z", False),
        ("1970-01-01T00:00:00Z", None, False),
    ],
)
def test_a_temperature_names_days_before_a_change_only_if_it_has_some(window_from, first_at, says):
    step = {"method": "POST", "path": "/v1/models/m/maps", "body": {}}
    drift = {"change": {"start": "2026-05-20T00:00:00Z"}, "recommendation": {"next": step}}
    temperature = {"window": {"from": window_from}}
    assert bool(before_change(drift, temperature, first_at)) is says
    none = drift | {"recommendation": {"next": None}}
    assert before_change(none, temperature, first_at) == ""


PROMOTIONS = [
    {"version": 1, "promoted_at": "2026-05-01T10:00:00Z"},
    {"version": 2, "promoted_at": "2026-05-02T10:00:00Z"},
    {"version": 1, "promoted_at": "2026-05-03T10:00:00Z"},
]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1", "map version 1 was promoted on 2026-05-03: "),
        ("2", "map version 2 was promoted on 2026-05-02: "),
        ("3", "map version 3 was promoted: "),
    ],
)
def test_evidence_that_restarted_with_a_map_says_so(version, expected):
    found = restart({"detector": {"scores": "mapped"}, "map_version": version}, PROMOTIONS)
    assert found.startswith(f"The evidence restarted when {expected}")
    assert found.count(".") == 1


@pytest.mark.parametrize(
    "drift", [{}, {"map_version": None}, {"detector": {"scores": "raw"}, "map_version": "1"}]
)
def test_evidence_that_did_not_restart_has_no_such_sentence(drift):
    assert restart(drift, PROMOTIONS) == ""


def test_errors_are_said_to_be_those_before_the_map():
    assert "as the model sent them, before map version 3 is applied" in before_map(3, {})
    assert "use the scores after it" in before_map(3, {"detector": {"scores": "mapped"}})
    assert "after it" not in before_map(3, {"detector": {"scores": "raw"}})
    assert before_map(None, {}) == ""


HIGH = {"mean_confidence": 0.97, "accuracy": 0.77, "n_effective": 400.0, "weight": 1.0}
AT = {
    "value": -0.02,
    "interval": [-0.03, -0.01],
    "threshold": 0.3,
    "scope": "positive",
    "acted_on": 0.2,
}
AT |= {"observed": 0.4, "predicted": 0.53, "treat_all": 0.05}


def texts(calibration: str, **change) -> dict:
    """Return what the page states of a model with two classes and a threshold."""
    advice = {"calibration": {"word": calibration, "allowed": 0.05}, "change": change}
    found = {"drift": ApiResponse(200, advice), "reliability": ApiResponse(200, {"table": [HIGH]})}
    error = {"value": 0.09, "interval": [0.08, 0.1]}
    more = {
        "thresholds": ApiResponse(200, {"n_units": 10_000, "metrics": {"net_benefit(threshold=0.3)": AT}}),
        "class:1": ApiResponse(200, {"metrics": {"ece": error}}),
    }  # fmt: skip
    return exception_texts({"classes": ["rest", "tumour"]}, found, more, "All data")


def test_an_error_that_is_small_on_average_names_where_it_is_not():
    found = texts("good")
    assert found["exceptions"] == [
        "Not of the probability of tumour: its error is 0.090 (0.080 to 0.100).",
        "Not of the flagged predictions. Threshold 0.3: 20 % of the predictions were flagged. Of 100 flagged, 40 had the label tumour; "
        "the model predicted 53.",
        "Not in every range of scores. Where the model says 97 %, the labels show 77 % (100 % of the predictions).",
    ]
    assert found["apart"].startswith("That is on average: before you act on the probability of")
    assert (texts("off")["exceptions"], texts("off")["apart"]) == ([], "")


def test_the_page_has_the_decision_thresholds_with_their_period():
    """The page of a model did not have them at all; after a change, days before it hide what is true now."""
    found = texts("off")
    assert found["flagged"][0].endswith("Sensitivity 24 %, specificity 82 %.")
    assert found["harm"][0].startswith("Acting on the model at threshold 0.3 is worse than not")
    assert found["flagged_note"].startswith("All data. A prediction is flagged if")
    changed = texts("off", word="changed", start="2026-11-15T00:00:00Z")
    assert changed["flagged_note"].startswith("Since the change, 15 Nov 2026. A prediction is")


def test_an_error_is_named_by_its_probability():
    metrics = {"scope": "positive", "metrics": {"ece": ERROR | {"above_null": False}}}
    found = verdict(metrics, RELIABILITY, ["normal", "finding"])
    assert found.startswith("Expected calibration error of the probability of finding: 0.069 (95 %")
