"""The verdict on the page of a model: a direction is stated only where chance does not explain the error."""

import pytest

from calibrant_server.service.pages.numbers import before_map, restart, verdict

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
    assert sentence(value=None, reason="no_labels").startswith("No calibration error.")


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


def test_an_error_that_is_small_on_average_names_the_range_where_it_is_not():
    high = {"mean_confidence": 0.97, "accuracy": 0.77, "n_effective": 400.0, "weight": 1.0}
    metrics = {"metrics": {"ece": ERROR | {"value": 0.02, "interval": [0.01, 0.03]}}}
    found = verdict(metrics, {"table": [high]}, 0.05)
    assert found.endswith(
        "average. Where the model says 97 %, the labels show 77 % (100 % of the predictions)."
    )
    assert "Where the model says" not in verdict(metrics, {"table": [high]}, 0.02)
