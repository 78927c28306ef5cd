"""Values of other libraries: against numbers that these printed, and against a naive second version.

`peer_values.json` was computed by the libraries themselves: torchmetrics 1.9.0, netcal 1.4.0, scikit-learn 1.9.1,
MONAI 1.6.1, uncertainty-calibration 0.1.4 and relplot 1.0.3 with PyTorch 2.13.0. `tests/adapters/peers` computes them anew.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import calibrant as cal
from calibrant.peers import PEERS, ScoredRows
from tests.calibrant.peer_rows import CASES, rows_of

EXPECTED = json.loads((Path(__file__).parent / "peer_values.json").read_text())
P, Y = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]], [0, 1, 1, 2]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("peer", PEERS)
def test_values_are_those_that_the_peers_printed(case: str, peer: str) -> None:
    rows, bins = rows_of(case)
    found = {name: each.value for name, each in PEERS[peer].compute(rows, bins).items()}
    assert found == {
        name: None if value is None else pytest.approx(value, abs=1e-6)
        for name, value in EXPECTED[case][peer].items()
    }


def gaps(rows: ScoredRows, bin_of: Callable[[float], int]) -> list[tuple[int, float]]:
    """Count and absolute gap of every non-empty bin, row by row."""
    members: dict[int, list[tuple[float, float]]] = {}
    for score, outcome in zip(rows.score.tolist(), rows.outcome.tolist(), strict=True):
        members.setdefault(bin_of(score), []).append((score, outcome))
    return [
        (len(each), abs(sum(p for p, _ in each) - sum(y for _, y in each)) / len(each))
        for each in members.values()
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("binary")])
def test_binned_values_equal_the_naive_version(case: str) -> None:
    rows, bins = rows_of(case)
    spaced, exact = list(np.linspace(0, 1, bins + 1)), [i / bins for i in range(bins + 1)]
    tiny = float(np.finfo(float).eps)
    rules: dict[tuple[str, str], Callable[[float], int]] = {
        ("netcal", "ECE"): lambda p: bisect_right(spaced, min(max(p, tiny), 1 - tiny)),
        ("uncertainty-calibration", "get_ece"): lambda p: bisect_left(exact[1:], p),
        ("relplot", "binnedECE"): lambda p: int(p / (1 / bins)),
    }
    for (peer, name), rule in rules.items():
        expected = sum(n * gap for n, gap in gaps(rows, rule)) / len(rows.score)
        assert PEERS[peer].compute(rows, bins)[name].value == pytest.approx(expected, abs=1e-12)
    mean = [gap for _, gap in gaps(rows, lambda p: bisect_left(spaced[1:-1], p))]
    found = PEERS["scikit-learn"].compute(rows, bins)["calibration_curve(strategy='uniform')"]
    assert found.value == pytest.approx(sum(mean) / len(mean), abs=1e-12)


def test_a_score_of_one_is_in_a_bin_of_its_own() -> None:
    """The gaps .4 and -.4 cancel in the last bin of ours; torchmetrics has 1 apart."""
    score, label = [0.6] * 5 + [1.0] * 5, [1] * 5 + [1, 1, 1, 0, 0]
    found = cal.compat(score, label, "torchmetrics", bins=2)["torchmetrics"]["values"]
    values = found["binary_calibration_error(norm='l1')"]
    assert values["value"] == pytest.approx(0.4) and values["ours"] == pytest.approx(0.0, abs=1e-12)


def test_ours_is_the_metric_and_each_has_a_sentence() -> None:
    for peer, found in cal.compat(P, Y, bins=5).items():
        assert found["version"] == PEERS[peer].version
        for name, each in found["values"].items():
            expected = cal.evaluate(P, Y, [each["metric"]], bins=5)[each["metric"]].value
            assert each["ours"] == expected, (peer, name)
            assert each["why"].endswith(".") and each["why"].count(". ") == 0


def test_the_smooth_error_is_near_the_exact_one() -> None:
    rows, _ = rows_of("binary-plain-700-15")
    found = cal.compat(rows.score, rows.labels, "relplot")["relplot"]["values"]["smECE"]
    assert found["value"] == pytest.approx(found["ours"], abs=1e-3)


def test_a_class_is_scored_as_a_binary_problem() -> None:
    one = cal.compat(P, Y, "netcal", scope="class:1", bins=4)["netcal"]["values"]["ECE"]["value"]
    column, outcome = [row[1] for row in P], [int(y == 1) for y in Y]
    assert one == cal.compat(column, outcome, "netcal", bins=4)["netcal"]["values"]["ECE"]["value"]


def test_edges_that_tie_leave_a_reason() -> None:
    found = cal.compat([0.5] * 8 + [0.9], [1] * 4 + [0] * 5, "netcal")["netcal"]["values"]
    assert found["ECE(equal_intervals=False)"]["value"] is None
    assert found["ECE(equal_intervals=False)"]["reason"] == "tied_edges"


@pytest.mark.parametrize(
    ("change", "pointer", "rule"),
    [
        ({"peer": "torch"}, "/compat", "one_of"),
        ({"scope": "all"}, "/scope", "one_of"),
        ({"weights": [1, 2, 1, 1]}, "/labels", "weights"),
        ({"labels": [[0, 1], [1], [1], [2]]}, "/labels", "several_ratings"),
    ],
)
def test_what_peers_do_not_take_is_rejected(change: dict, pointer: str, rule: str) -> None:
    with pytest.raises(cal.CalibrationInputError) as rejected:
        cal.compat(**({"probabilities": P, "labels": Y} | change))
    violation = rejected.value.violations[0]
    assert (violation.pointer, violation.rule) == (pointer, rule)


def test_several_ratings_are_reduced_on_request() -> None:
    several = cal.compat(P, [[0, 0, 1], [1], [1], [2]], "monai", raters="majority")
    assert several == cal.compat(P, Y, "monai", raters="majority")
