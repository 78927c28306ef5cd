"""The public surface of `calibrant`: what its functions take, return, print and reject."""

from __future__ import annotations

import copy
import doctest
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import calibrant as cal
from calibrant.calibrators import MAPS
from calibrant.library_arguments import DATA
from calibrant.metrics import requested
from calibrant.metrics.requests import shared_options
from scripts.library_names import CLIENT, PAGE, STUB, client_page, page, stub
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
N = 120


def data(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of three classes and one label for each."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), n)
    return p, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


@pytest.fixture
def pyplot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


# What is documented.


def test_the_examples_of_the_page_hold() -> None:
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0


def test_the_readme_runs(pyplot) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    p, y = data()
    space = {"probabilities": p, "labels": y}
    exec(block[1], space)
    assert float(space["error"]) == pytest.approx(0.2) and len(space["report"]) == 12
    assert space["recalibrated"].shape == p.shape


def test_documented_names_are_the_exported_names() -> None:
    assert set(re.findall(r"`cal\.(\w+)`", PAGE.read_text())) == set(dir(cal))


def test_every_exported_name_is_there_and_documents_itself() -> None:
    for name in dir(cal):
        found = getattr(cal, name)
        assert name == "__version__" or inspect.getdoc(found), name
    space: dict[str, object] = {}
    exec("from calibrant import *", space)
    assert set(dir(cal)) <= set(space)
    with pytest.raises(AttributeError, match="no attribute 'eces'"):
        cal.eces  # type: ignore[attr-defined]  # noqa: B018


def test_stub_and_page_list_the_metrics() -> None:
    assert STUB.read_text() == stub(), "run `make names`"
    assert PAGE.read_text() == page(), "run `make names`"
    assert CLIENT.read_text() == client_page(), "run `make names`"


def test_the_import_loads_nothing_else() -> None:
    loaded = (
        "import sys, calibrant; print(sorted({'numpy', 'scipy', 'zstandard'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.strip() == "[]"


# The functions of metrics.


@pytest.mark.parametrize("slug", sorted(cal.METRICS))
def test_a_function_takes_the_options_of_its_metric_and_no_others(slug: str) -> None:
    function, metric = getattr(cal, slug), cal.METRICS[slug]
    options = [name for name in inspect.signature(function).parameters if name not in DATA]
    assert sorted(options) == sorted(
        ["raters", "ci", *metric.options, *(option.name for option in metric.own_options)]
    )
    assert metric.source in function.__doc__ and "Notes" in function.__doc__
    p, y = data(6)
    with pytest.raises(
        TypeError, match=f"{slug}\\(\\) takes no argument 'colour'; its options are"
    ):
        function(p, y, colour="red")
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("slug", sorted(cal.METRICS))
def test_no_data_is_no_number(slug: str) -> None:
    function = getattr(cal, slug)
    for found in (
        function([], []),
        function(np.zeros((0, 3)), []),
        function([[0.7, 0.2, 0.1]], [None]),
    ):
        assert found.value is None and found.interval is None and found.reason
        assert (found.n, found.n_ratings, found.n_units) == (0, 0, 0)
        with pytest.raises(ValueError, match=f"{slug} has no value: {found.reason}"):
            float(found)


def test_options_reach_the_metric() -> None:
    p, y = data()
    assert cal.lp_ece(p, y, order=1).value == pytest.approx(cal.ece(p, y).value, abs=1e-15)
    assert cal.ece(p, y, bins=7).extra["bins"] == 7
    assert cal.brier(p, y, ci=0.5).interval[0] > cal.brier(p, y, ci=0.99).interval[0]  # type: ignore[index]
    assert cal.evaluate(p, y, ["ece", "lp_ece"], order=1)["lp_ece"].value == pytest.approx(
        cal.ece(p, y).value, abs=1e-15
    )
    report = cal.evaluate(p, y, "lp_ece(order=3.0),ece,ece(bins=7)")
    assert list(report) == ["lp_ece(order=3)", "ece", "ece(bins=7)"]
    assert report["ece(bins=7)"].value == cal.ece(p, y, bins=7).value
    assert report["lp_ece(order=3)"].value == cal.lp_ece(p, y, order=3).value
    assert "lp_ece(order=3)=" in repr(report["lp_ece(order=3)"])
    with pytest.raises(
        cal.CalibrationInputError, match="Received option 'order'; the requested metrics take"
    ):
        cal.evaluate(p, y, ["ece", "brier"], order=1)


def test_one_dimension_is_class_one_and_two_classes_are_scored_by_the_top_label() -> None:
    rng = np.random.default_rng(4)
    one = rng.random(200)
    y = (rng.random(200) < one).astype(int)
    both = np.column_stack([1 - one, one])
    assert cal.ece(one, y).extra["scope"] == "positive"
    assert cal.ece(both, y).extra["scope"] == "top_label"
    assert cal.ece(both, y, scope="positive").value == pytest.approx(
        cal.ece(one, y).value, abs=1e-12
    )
    odds = np.log(one) - np.log1p(-one)
    for logits in (odds, odds.tolist()):
        assert cal.brier(logits=logits, labels=y).value == pytest.approx(
            cal.brier(one, y).value, abs=1e-12
        )
    assert (
        cal.ece(one, y == 1)
        == cal.ece(one.tolist(), y.tolist())
        == cal.ece(tuple(one), tuple(y.tolist()))
    )


class Series:
    """A column of another library."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.values


def test_integers_name_units_and_foreign_columns_are_arrays() -> None:
    p, y = data()
    units = np.arange(N) // 3
    named = cal.ece(p, y, units=[f"{unit}" for unit in units])
    assert (
        cal.ece(Series(p), Series(y), units=units) == cal.ece(p, y, units=units.tolist()) == named
    )
    assert named.n_units == N // 3


def test_columns_of_arrow_are_those_of_numpy() -> None:
    pl = pytest.importorskip("polars")
    p, y = data()
    units = np.arange(N) // 3
    found = cal.evaluate(
        pl.Series(p[:, 1]), pl.Series(y == 1), ["ece", "brier"], units=pl.Series(units)
    )
    assert dict(found) == dict(cal.evaluate(p[:, 1], y == 1, ["ece", "brier"], units=units))
    odds = np.log(p[:, 1]) - np.log1p(-p[:, 1])
    assert cal.ece(logits=pl.Series(odds), labels=y == 1) == cal.ece(logits=odds, labels=y == 1)
    assert cal.ece(pl.DataFrame(p), pl.Series(y)) == cal.ece(p, y)
    ratings = pl.Series([[0, 1], None, [2]])
    assert cal.ece(p[:3], ratings) == cal.ece(p[:3], [[0, 1], None, [2]])
    with pytest.raises(cal.CalibrationInputError, match=r"probabilities, row 1: Received null"):
        cal.ece(pl.Series([0.5, None]), [0, 1])
    assert cal.ece(pl.Series([], dtype=pl.Float64), []).reason == "no_data"


P3, Y3 = data(3)
BAD = {
    "both": (lambda: cal.ece(P3, Y3, logits=P3), "probabilities", None, "one_score_column"),
    "neither": (lambda: cal.ece(labels=Y3), "probabilities", None, "one_score_column"),
    "no labels": (lambda: cal.ece(P3), "labels", None, "missing"),
    "range": (lambda: cal.ece([0.1, 1.5], [0, 1]), "probabilities", 1, "range"),
    "sum": (lambda: cal.ece([[0.5, 0.5], [0.5, 0.2]], [0, 1]), "probabilities", 1, "row_sum"),
    "nan": (lambda: cal.ece(logits=[[0.5, np.nan]], labels=[0]), "logits", 0, "finite"),
    "class": (lambda: cal.ece(P3, [0, 1, 3]), "labels", 2, "class_range"),
    "length": (lambda: cal.ece(P3, [0, 1]), "labels", None, "length"),
    "empty": (lambda: cal.ece([], [1]), "labels", None, "length"),
    "weight": (lambda: cal.ece(P3, Y3, weights=[1, -1, 1]), "weights", 1, "weight"),
    "unit": (lambda: cal.ece(P3, Y3, units=["a", "b", "c\td"]), "units", 2, "name"),
    "text": (lambda: cal.ece("0.5", [1]), "probabilities", None, "matrix"),
    "masked": (
        lambda: cal.ece(np.ma.array([0.5], mask=[True]), [1]),
        "probabilities",
        None,
        "list",
    ),
    "bins": (lambda: cal.ece(P3, Y3, bins=0), "bins", None, "range"),
    "raters": (lambda: cal.ece(P3, Y3, raters="all"), "raters", None, "one_of"),
    "scope": (lambda: cal.ece(P3, Y3, scope="positive"), "scope", None, "one_of"),
    "order": (lambda: cal.lp_ece(P3, Y3, order=0.5), "order", None, "range"),
    "metric": (lambda: cal.evaluate(P3, Y3, ["eces"]), "metrics", None, "unknown_metric"),
    "method": (lambda: cal.fit_map(P3, Y3, method="iso"), "method", None, "one_of"),
    "map option": (
        lambda: cal.fit_map(P3, Y3, method="platt", bins=3),
        "bins",
        None,
        "unknown_option",
    ),
    "objective": (
        lambda: cal.fit_temperature(P3, Y3, objective="mse"),
        "objective",
        None,
        "one_of",
    ),
    "flat": (
        lambda: cal.Pane.fill([0.5], [1], spec=cal.PaneSpec("multiclass", 2)),
        *("probabilities", None, "task"),
    ),
    "pane bins": (
        lambda: cal.Pane.fill(P3, Y3).evaluate(["ece"], bins=17),
        "bins",
        None,
        "bins_not_exact",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_name_argument_row_and_rule(name: str) -> None:
    call, argument, row, rule = BAD[name]
    with pytest.raises(cal.CalibrationInputError) as raised:
        call()
    first = raised.value.violations[0]
    assert (first.argument, first.row, first.rule) == (argument, row, rule)
    assert str(raised.value).startswith(argument if row is None else f"{argument}, row {row}:")
    assert f"({rule})" in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).violations == raised.value.violations


# Results.


def test_an_estimate_is_a_number() -> None:
    p, y = data()
    found = cal.ece(p, y)
    assert float(found) == found.value == np.asarray([found], float)[0]
    assert f"{found:.2f}" == f"{found.value:.2f}" and f"{found}" == repr(found)
    assert found.null_mean is not None and found.null_mean < found.null_q95  # type: ignore[operator]
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found


def test_estimates_compare_as_numbers_and_a_missing_one_does_not() -> None:
    p, y = data()
    found, missing = cal.ece(p, y), cal.ece([], [])
    value = float(found)
    assert found < value + 1e-9 and found <= value and found >= value and found > value - 1e-9
    assert not found < value and not found > found and round(found, 2) == round(value, 2)
    for compare in (
        lambda: missing < 1.0,
        lambda: missing > 0.0,
        lambda: missing < 1.0,
        lambda: max(found, missing),
    ):
        with pytest.raises(ValueError, match="no value"):
            compare()


def test_a_report_is_a_mapping_that_prints() -> None:
    p, y = data()
    report = cal.evaluate(p, y)
    assert list(report) == list(report.to_dict()["metrics"]) and len(report) == 12
    assert (
        report["ece"] == cal.ece(p, y)
        and report.to_dict()["metrics"]["ece"] == report["ece"].to_dict()
    )
    assert (report.n_predictions, report.n_labelled, report.n_ratings, report.n_units) == (N,) * 4
    lines = repr(report).splitlines()
    assert len(lines) == 14 and lines[2].startswith("accuracy")
    page = report.to_html()
    assert page.startswith("<!doctype html>") and "Expected calibration error" in page
    with pytest.raises(KeyError, match="the report has no 'eces'"):
        report["eces"]


def test_a_table_has_its_columns_as_arrays() -> None:
    p, y = data()
    table = cal.reliability(p, y, bins=6)
    rows = table.to_dict()["table"]
    assert len(table) == 6 and table.bins == 6 and table.n == N
    np.testing.assert_array_equal(table.bin_weight, [row["weight"] for row in rows])
    assert np.isnan(table.bin_confidence[table.bin_weight == 0]).all()
    assert table.bin_interval.shape == (6, 2)
    assert table.ece == pytest.approx(cal.ece(p, y, bins=6).value, abs=1e-15)
    assert "bin_accuracy" in dir(table) and "scope" in dir(table)
    assert (
        pickle.loads(pickle.dumps(table)).to_dict() == copy.copy(table).to_dict() == table.to_dict()
    )
    with pytest.raises(AttributeError, match="no 'colour'"):
        table.colour  # noqa: B018


def test_a_temperature_recalibrates_arrays_of_both_shapes() -> None:
    p, y = data(400)
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    found = cal.fit_temperature(sharp, y)
    assert float(found) == pytest.approx(3.0, rel=0.2) and found.verdict == "ok"
    np.testing.assert_allclose(found(p**2 / (p**2).sum(axis=1, keepdims=True)).sum(axis=1), 1.0)
    np.testing.assert_allclose(found(logits=float(found) * np.log(p)), p, atol=1e-12)
    odds = 2.0 * float(found)
    one = found([1 / (1 + np.exp(-odds)), 0.5])
    np.testing.assert_allclose(one, [1 / (1 + np.exp(-2.0)), 0.5], atol=1e-12)
    assert cal.Temperature.from_dict(found.to_dict()).value == found.value
    none = cal.fit_temperature(p, [None] * 400)
    assert none.value is None and none.reason == "no_labels"
    with pytest.raises(ValueError, match="no temperature"):
        float(none)
    with pytest.raises(cal.CalibrationInputError, match="no temperature to apply"):
        none(p)


METHODS = sorted(MAPS)


@pytest.mark.parametrize("method", METHODS)
def test_maps_keep_the_shape_of_what_they_map(method: str) -> None:
    p, y = data(300)
    fitted = cal.fit_map(p, y, method=method)
    mapped = fitted(p)
    if fitted.parameters is None:
        assert fitted.reason
        return
    assert mapped.shape == (p.shape if fitted.scope == "full" else (300,))
    assert ((mapped >= 0) & (mapped <= 1)).all()
    again = cal.CalibrationMap.from_dict(fitted.to_dict())
    np.testing.assert_array_equal(again(p), mapped)
    assert again.digest == fitted.digest and method in repr(fitted)


def test_a_map_of_class_one_takes_and_gives_one_dimension() -> None:
    p, y = data(300)
    for method in ("temperature", "isotonic", "beta"):
        fitted = cal.fit_map(p[:, 1], y == 1, method=method)
        assert fitted.scope in ("positive", "full") and fitted(p[:5, 1]).shape == (5,)


# Plots.


def test_the_diagram_shows_the_table(pyplot) -> None:
    p, y = data()
    table = cal.reliability(p, y)
    _, own = pyplot.subplots()
    assert table.plot(own) is own
    assert own.lines and len(own.containers) == 1
    axes = table.plot()
    filled = table.bin_weight > 0
    confidence, accuracy = table.bin_confidence[filled], table.bin_accuracy[filled]
    labels = ("observed", "worth fewer than 5 independent units")
    points = [each for each in axes.collections if each.get_label() in labels]
    shown = sorted(tuple(at) for each in points for at in np.asarray(each.get_offsets()))
    np.testing.assert_allclose(shown, np.column_stack([confidence, accuracy]))
    [band], [shares] = axes.containers, axes.figure.axes[1].containers
    heights = [bar.get_height() for bar in shares]
    np.testing.assert_allclose(heights, (table.bin_weight / table.bin_weight.sum())[filled])
    units = np.maximum(table.column("n_effective")[filled], 1.0)
    reach = 1.959964 * np.sqrt(confidence * (1 - confidence) / units)
    np.testing.assert_allclose(
        [bar.get_y() for bar in band], np.maximum(confidence - reach, 0.0), atol=1e-6
    )
    texts = [each.get_text() for each in axes.figure.texts]
    assert f"ECE {table.ece:.3f}" in texts
    assert any(f"n = {N:,}" in each for each in texts)
    assert axes.figure.axes[1].get_xlabel() == "confidence of the top class"


def test_every_result_draws_with_and_without_data(pyplot) -> None:
    p, y = data()
    for results in ((p, y), (p, [None] * N)):
        for make in (cal.reliability, cal.fit_temperature, cal.fit_map, cal.evaluate):
            figure = make(*results).plot().figure  # type: ignore[operator]
            figure.canvas.draw()
            texts = [text.get_text() for axes in figure.axes for text in axes.texts]
            empty = any("Nothing to draw" in text for text in texts)
            assert empty is (results[1] is not y), make
    with pytest.raises(ValueError, match="more than two classes"):
        cal.fit_map(p, y, method="vector").plot()


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'calibrant\[plot\]'"):
        cal.reliability(*data()).plot()


def test_brackets_override_a_shared_option_with_the_default_too() -> None:
    p, y = data()
    found = cal.evaluate(p, y, "lp_ece(order=2),lp_ece", order=3)
    assert {key: each.extra["order"] for key, each in found.items()} == {
        "lp_ece(order=2)": 2.0,
        "lp_ece": 3.0,
    }
    assert found["lp_ece(order=2)"].value == cal.lp_ece(p, y).value
    assert found["lp_ece"].value == cal.lp_ece(p, y, order=3).value
    kept = cal.Pane.fill(p, y).evaluate("lp_ece(order=2)", order=3)
    assert kept["lp_ece(order=2)"].extra["order"] == 2.0


def test_rows_take_any_number_of_bins_in_every_binned_metric() -> None:
    p, y = data()
    binned = [slug for slug, metric in cal.METRICS.items() if "bins" in metric.options]
    found = cal.evaluate(p, y, binned, bins=7)
    without = {"no_cases", "one_vote", "too_few_votes"}
    assert {each.reason for each in found.values() if each.value is None} <= without
    counts = np.bincount(np.minimum(np.ceil(p[:, 0] * 7).astype(int) - 1, 6), minlength=7)
    by_bin = found["calibration_loss"].extra["by_bin"]["count"]
    assert by_bin[0] == counts.tolist()


@pytest.mark.parametrize(
    ("classes", "rule"),
    [
        (["a", "b", "a"], "repeated_class"),
        (["a", "b"], "n_classes"),
        (["a", "b", "c", "d"], "n_classes"),
        (["a", "b", 3], "list"),
        ("abc", "list"),
        (["a", "b", ""], "class_name"),
        (["a", "b", "c" * 201], "class_name"),
        (["a", "b", "\x1b[31mc"], "class_name"),
        (["a", "b", "c\u2028"], "class_name"),
        (["a", "b", "c\ud800"], "class_name"),
    ],
)
def test_names_of_classes_are_distinct_texts_one_per_class(classes: object, rule: str) -> None:
    with pytest.raises(cal.CalibrationInputError) as caught:
        cal.accuracy(np.eye(3), [0, 1, 2], classes=classes)
    assert [(each.argument, each.rule) for each in caught.value.violations] == [("classes", rule)]
    if rule == "class_name":
        with pytest.raises(cal.CalibrationInputError, match="class_name"):
            cal.evaluate(np.eye(3), np.eye(3, dtype=int), classes=classes, task="multilabel")


@pytest.mark.parametrize(
    ("options", "argument", "rule"),
    [
        ({"scope": 0}, "scope", "type"),
        ({"scope": ("all",)}, "scope", "type"),
        ({"scope": ""}, "scope", "one_of"),
        ({"metrics": ["ece", 5]}, "metrics", "metric_form"),
        ({"metrics": "ece(bins=1_0)"}, "metrics", "type"),
        ({"metrics": "ece(bins=\u0663)"}, "metrics", "type"),
    ],
)
def test_options_of_another_form_are_rejected(
    options: dict[str, object], argument: str, rule: str
) -> None:
    with pytest.raises(cal.CalibrationInputError) as caught:
        cal.evaluate(*data(), **({"metrics": ["ece"]} | options))
    assert [(each.argument, each.rule) for each in caught.value.violations] == [(argument, rule)]


def test_a_membership_in_brackets_overrides_the_querys_binning() -> None:
    for binning, key in (("soft", "ml1_ece(membership=hard)"), ("equal_width", "ml1_ece")):
        found = requested("ml1_ece(membership=hard)", shared=shared_options(binning))
        assert [each.key for each in found] == [key]


def test_logits_given_as_probabilities_are_advised_once() -> None:
    logits = np.array([[3.0, -1.0], [2.0, 0.5], [-4.0, 1.0]])
    with pytest.raises(cal.CalibrationInputError) as raised:
        cal.ece(logits, [0, 0, 1])
    assert str(raised.value).count("If these are logits, pass them as logits.") == 1
    assert str(raised.value).count("Received a value outside [0, 1]") == 3
    with pytest.raises(cal.CalibrationInputError, match="row 1: Received NaN") as raised:
        cal.ece([0.5, float("nan")], [0, 1])
    assert "logits" not in str(raised.value)


def test_one_rating_of_probability_0_is_singular() -> None:
    found = cal.evaluate([[1.0, 0.0], [0.5, 0.5]], [1, 0], "nll")["nll"].detail
    assert found == "1 rating is of a class to which the model gave probability 0"


@pytest.mark.parametrize("n", [500, 60_000])
def test_the_curve_of_a_temperature_does_not_follow_later_changes_of_the_arrays(n):
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(5), n), rng.integers(0, 5, n)
    expected = cal.fit_temperature(probabilities.copy(), labels.copy()).curve
    fitted = cal.fit_temperature(probabilities, labels)
    copied = pickle.loads(pickle.dumps(fitted))
    probabilities[:], labels[:] = 0.2, 0
    assert fitted.curve == copied.curve == expected
    assert fitted.to_dict()["curve"] == expected


def test_probabilities_that_are_divided_by_their_sum_stay_as_the_caller_has_them():
    probabilities = np.array([[0.5, 0.4995], [0.25, 0.75]])
    sent = probabilities.copy()
    cal.evaluate(probabilities, [0, 1], ["brier"])
    assert (probabilities == sent).all()
