"""Figures of the page of a model: texts that neither cover each other nor are covered."""

import re

import pytest

from calibrant_server.service.pages.charts import reliability_chart, slices_chart, temperature_chart

TEXT = re.compile(r'<text x="([\d.]+)" y="([\d.]+)" class="(\w*)" text-anchor="\w+">([^<]*)</text>')


def texts(figure: str) -> dict[str, float]:
    """Height of each text."""
    return {found[3]: float(found[1]) for found in TEXT.findall(figure)}


def fitted(best: float, before: float, after: float) -> dict:
    grid = [0.25, 0.5, 1.0, 2.0, 4.0]
    curve = {"temperature": grid, "nll": [after + abs(t - best) for t in grid]}
    return {
        "temperature": best,
        "before": {"nll": before},
        "after": {"nll": after},
        "curve": curve,
    }


def test_equal_losses_before_and_after_are_one_text() -> None:
    found = texts(str(temperature_chart(fitted(1.0001, 0.03321, 0.03320))))
    assert "before and after 0.0332" in found
    assert not [each for each in found if each.startswith(("before 0", "after 0"))]


@pytest.mark.parametrize("best", [1.02, 1.3])
def test_different_losses_are_two_texts_apart(best: float) -> None:
    found = texts(str(temperature_chart(fitted(best, 0.0340, 0.0338))))
    assert found["after 0.0338"] - found["before 0.0340"] >= 12


def test_a_full_first_bin_does_not_cover_the_name_of_the_shares() -> None:
    """Probabilities of one class are near 0: the first bin has nearly all of them."""
    rows = [
        {
            "lower": low, "upper": low + 0.5, "mean_confidence": low + 0.1, "accuracy": low + 0.1, "interval": [low, low + 0.3],
            "n_effective": weight, "n_predictions": int(weight), "weight": weight,
        }
        for low, weight in ((0.0, 960.0), (0.5, 40.0))
    ]  # fmt: skip
    figure = str(reliability_chart({"scope": "positive", "table": rows}, None))
    tops = [
        float(each)
        for each in re.findall(r'<rect x="[\d.]+" y="([\d.]+)"[^>]*class="share"', figure)
    ]
    assert texts(figure)["share of the data, log"] < min(tops)


def test_names_of_slices_fit_left_of_their_dots() -> None:
    """In letters of 12.5 units, as on a narrow screen, each at most 0.62 of its height wide."""
    names = ["scanner:MAGNETOM-Vida-3T:Station-12.building-C", "scanner:GE", "scanner:" + "m" * 128]
    rows = [{"name": name, "value": 0.1, "interval": None, "null_q95": None} for name in names]
    figure = str(slices_chart(rows))
    shown = re.findall(r'<text x="122(?:\.0+)?" [^>]*>([^<]*)</text>', figure)
    assert shown[:2] == ["MAGNETOM-Vida-…", "GE"]
    assert all(len(each) * 12.5 * 0.62 <= 122 for each in shown)
    assert all(name in figure for name in names)
