"""Requests of metrics: options in brackets, one canonical key, errors that name what would do."""

import numpy as np
import pytest

import calibrant as cal
from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.metrics import METRICS, PaneQuery, View, compute_metrics, requested


def keys(text: str) -> list[str]:
    return [each.key for each in requested(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ece", ["ece"]),
        (" ece , brier ", ["ece", "brier"]),
        ("ece,ece", ["ece"]),
        ("ece()", ["ece"]),
        ("lp_ece(order=2)", ["lp_ece"]),
        ("lp_ece( order = 3.0 )", ["lp_ece(order=3)"]),
        ("lp_ece(order=3),lp_ece(order=3.0)", ["lp_ece(order=3)"]),
        ("kde_ece(leave=instance,bandwidth=5e-2)", ["kde_ece(bandwidth=0.05,leave=instance)"]),
        ("ece(bins=15)", ["ece(bins=15)"]),
        ("ece(scope=class:2,raters=mean)", ["ece(raters=mean,scope=class:2)"]),
    ],
)
def test_a_request_has_one_canonical_key(text: str, expected: list[str]) -> None:
    assert keys(text) == expected
    assert keys(",".join(expected)) == expected


@pytest.mark.parametrize("slug", sorted(METRICS))
def test_every_own_option_can_be_written_in_brackets_and_its_default_is_dropped(slug: str) -> None:
    for option in METRICS[slug].own_options:
        assert keys(f"{slug}({option.name}={option.default})") == [slug]
        for value in option.allowed:
            assert len(keys(f"{slug}({option.name}={value})")) == 1


@pytest.mark.parametrize(
    ("text", "rule", "named"),
    [
        ("widest", "unknown_metric", "the nearest is"),
        ("eces", "unknown_metric", "the nearest is ece."),
        ("eec", "unknown_metric", "the nearest is ece."),
        ("kde-ece", "unknown_metric", "kde_ece"),
        (
            "lp_ece(power=2)",
            "unknown_option",
            "it takes ties, order, bins, binning, edges, raters, scope, min_count",
        ),
        ("brier(bins=10)", "unknown_option", "it takes raters"),
        ("lp_ece(order=0)", "range", "lp_ece: Received order=0; expected a value in [1, 100]"),
        ("lp_ece(order=x)", "type", "lp_ece: Received order=x; expected a number"),
        ("ece(ties=never)", "one_of", "together, split"),
        ("ece(bins=0)", "range", "Received bins=0; expected"),
        ("lp_ece(order=2,order=3)", "repeated_option", "twice"),
        ("lp_ece(order)", "metric_form", "expected name=value"),
        ("lp_ece(order=)", "metric_form", "expected name=value"),
        ("lp_ece(order=2", "metric_form", "expected a name"),
        ("ece)(", "metric_form", "expected a name"),
        ("", "metric_form", "expected a name"),
        ("ece,,brier", "metric_form", "expected a name"),
        ("ece" + " " * 3000 + "x", "metric_form", "expected a name"),
        (",".join(f"ece(bins={n})" for n in range(1, 103)), "range", "at most 100"),
    ],
)
def test_what_cannot_be_read_is_rejected_with_what_could(text: str, rule: str, named: str) -> None:
    with pytest.raises(CalibrationInputError) as rejected:
        requested(text)
    (violation,) = rejected.value.violations
    assert (violation.pointer, violation.rule) == ("/metrics", rule)
    assert named in violation.detail


@pytest.fixture(scope="module")
def view() -> View:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(3), 400)
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(
        Batch.from_columns({"probabilities": p, "labels": rng.integers(0, 3, 400).tolist()}).batch
    )
    return View(pane, PaneQuery(bins=10))


def test_options_in_brackets_hold_for_their_metric_alone(view: View) -> None:
    found = compute_metrics(
        view, ["ece", "ece(bins=5)", "lp_ece(order=1)", "lp_ece", "rmsce", "ece(scope=class:1)"], 1
    )
    assert found["ece"]["bins"] == 10 and found["ece(bins=5)"]["bins"] == 5
    assert found["lp_ece(order=1)"]["value"] == pytest.approx(found["ece"]["value"], abs=1e-15)
    assert found["lp_ece"]["value"] == pytest.approx(found["rmsce"]["value"], abs=1e-15)
    assert found["ece(scope=class:1)"]["scope"] == "class:1"


def test_brackets_give_what_the_question_gives(view: View) -> None:
    for fields in (
        {"bins": 5},
        {"binning": "equal_mass"},
        {"edges": "left"},
        {"raters": "mean"},
        {"scope": "class:1"},
    ):
        ((name, value),) = fields.items()
        shared = compute_metrics(View(view.pane, PaneQuery(**{"bins": 10, **fields})), ["ece"], 1)[
            "ece"
        ]
        assert compute_metrics(view, [f"ece({name}={value})"], 1) == {
            f"ece({name}={value})": shared
        }


def test_what_is_called_exact_is_the_value_of_the_rows() -> None:
    """Of metrics that are estimates at least some differ, so the flag is not for show."""
    rng = np.random.default_rng(11)
    p = rng.dirichlet(np.full(3, 0.7), 500)
    counts = np.stack([rng.multinomial(2 + i % 3, row) for i, row in enumerate(p)])
    cases = [f"case-{i // 50}" for i in range(500)]
    batch = Batch.from_columns({"probabilities": p, "label_counts": counts, "cases": cases}).batch
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch)
    slugs = list(METRICS)
    stored, rows = (compute_metrics(View(pane, PaneQuery(), each), slugs) for each in (None, batch))
    estimated = []
    for slug, metric in METRICS.items():
        mine, exact = stored[slug]["value"], rows[slug]["value"]
        if metric.exact:
            assert mine == pytest.approx(exact, abs=1e-9), slug
        elif mine is None or mine != pytest.approx(exact, abs=1e-9):
            estimated.append(slug)
    assert len(estimated) >= 5


def test_options_without_effect_are_rejected() -> None:
    """Ties are of bins of equal mass, edges of those of equal width."""
    p, y = [0.2, 0.7, 0.9], [0, 1, 1]
    for metrics, shared, pointer in (
        ("ece(ties=split)", {}, "/metrics"),
        ("ece(edges=left)", {"binning": "equal_mass"}, "/metrics"),
        ("ece(binning=equal_mass,edges=left)", {}, "/metrics"),
        ("ece,adaptive_ece", {"binning": "equal_mass", "edges": "left"}, "/edges"),
    ):
        with pytest.raises(CalibrationInputError) as caught:
            cal.evaluate(p, y, metrics=metrics, **shared)
        assert [(each.pointer, each.rule) for each in caught.value.violations] == [
            (pointer, "not_taken")
        ]
    with pytest.raises(CalibrationInputError, match="ties needs binning=equal_mass"):
        cal.ece(p, y, ties="split")
    with pytest.raises(CalibrationInputError, match="edges needs binning=equal_width"):
        cal.ece(p, y, binning="equal_mass", edges="left")
    for taken in (
        "ece(ties=split,binning=equal_mass)",
        "adaptive_ece(ties=split)",
        "ece(edges=left)",
    ):
        assert (
            cal.evaluate(p, y, metrics=taken)[
                taken.replace("ties=split,binning=equal_mass", "binning=equal_mass,ties=split")
            ].value
            is not None
        )
    assert cal.evaluate(p, y, metrics="ece,adaptive_ece", edges="left")["ece"].value is not None


def test_no_data_above_epsilon_is_no_number() -> None:
    found = cal.tace([[0.2, 0.8], [0.9, 0.1]], [1, 0], epsilon=1.0)
    assert (found.value, found.reason) == (None, "nothing_above_epsilon")
    assert cal.tace([[0.2, 0.8], [0.9, 0.1]], [1, 0], epsilon=0.85).value is not None
