"""Figures of a page: each number at its place, each text escaped and on the sheet."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest

import calibrant as cal
from calibrant.quality_report import ReportContents
from calibrant.quality_report.figures import figures
from calibrant.quality_report.svg_axes import CHARACTER, SvgAxes

NUMBER = r"-?\d+(?:\.\d+)?"


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    rng = np.random.default_rng(4)
    p = rng.dirichlet([1, 1, 1], 900)
    labels = (p.cumsum(axis=1) < rng.random((900, 1))).sum(axis=1)
    report = cal.evaluate(p, labels, ["ece", "mce", "brier"])
    return ReportContents(
        title="m",
        metrics=report.to_dict(),
        reliability=cal.reliability(p, labels).to_dict(),
        temperature=cal.fit_temperature(p, labels).to_dict(),
        tolerance=0.05,
    )


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def area(svg: ElementTree.Element) -> dict[str, float]:
    """Return the place of the axes."""
    found = svg.find("./defs/clipPath/rect")
    assert found is not None
    return {name: float(value) for name, value in found.attrib.items()}


def values(svg: ElementTree.Element, x_limits, y_limits, places) -> np.ndarray:
    """Return data at places of the sheet."""
    at = area(svg)
    x, y = np.array(places, float).T
    return np.column_stack(
        [
            x_limits[0] + (x - at["x"]) / at["width"] * (x_limits[1] - x_limits[0]),
            y_limits[1] - (y - at["y"]) / at["height"] * (y_limits[1] - y_limits[0]),
        ]
    )


def circles(svg: ElementTree.Element) -> list[tuple[str, str]]:
    return [(each.attrib["cx"], each.attrib["cy"]) for each in svg.findall("./g/circle")]


def test_points_of_the_reliability_diagram_are_the_bins(contents: ReportContents) -> None:
    svg = parsed(figures(contents)[0].svg)
    limits = (-0.02, 1.02)
    assert contents.reliability is not None
    rows = [row for row in contents.reliability["table"] if row["weight"]]
    expected = [[row["mean_confidence"], row["accuracy"]] for row in rows]
    np.testing.assert_allclose(values(svg, limits, limits, circles(svg)), expected, atol=1e-4)
    at = area(svg)
    assert at["width"] == pytest.approx(at["height"], abs=0.02)


def test_points_and_lines_of_errors_are_values_intervals_and_nulls(
    contents: ReportContents,
) -> None:
    drawn = figures(contents)[1]
    svg = parsed(drawn.svg)
    axes = SvgAxes(drawn.size, drawn.below, drawn.title)
    drawn.draw(cast("Any", axes))
    limits = axes.get_xlim()
    errors = [contents.estimates[key] for key in ("mce", "ece")]
    points = values(svg, limits, (-0.6, 1.6), circles(svg))
    np.testing.assert_allclose(
        points, [[each["value"], place] for place, each in enumerate(errors)], atol=2e-4
    )
    runs = [re.findall(NUMBER, each.attrib["points"]) for each in svg.findall("./g/polyline")]
    ends = [values(svg, limits, (-0.6, 1.6), np.reshape(run, (-1, 2)))[:, 0] for run in runs]
    expected = [
        ends
        for each in errors
        for ends in ([each["null_mean"], each["null_q95"]], each["interval"])
    ]
    np.testing.assert_allclose(ends, expected, atol=2e-4)


def test_the_lowest_point_of_the_curve_is_the_temperature(contents: ReportContents) -> None:
    svg = parsed(figures(contents)[2].svg)
    line = svg.find("./g/polyline")
    assert line is not None and contents.temperature is not None
    curve = np.reshape(re.findall(NUMBER, line.attrib["points"]), (-1, 2)).astype(float)
    fitted, at = contents.temperature["temperature"], area(svg)
    lowest = curve[curve[:, 1].argmax(), 0]
    # The horizontal axis is logarithmic, from a fifth to five times the temperature.
    assert lowest == pytest.approx(at["x"] + at["width"] / 2, abs=at["width"] / 50)
    assert fitted is not None and len(curve) == 400


def test_every_text_is_on_the_sheet_and_escaped(contents: ReportContents) -> None:
    hostile = '<script>alert(1)</script>&"'
    estimates = {f"ece(scope={hostile})": contents.estimates["ece"]}
    hostile_contents = replace(contents, metrics=contents.metrics | {"metrics": estimates})
    for some in (contents, hostile_contents):
        for drawn in figures(some):
            assert "<script" not in drawn.svg
            svg = parsed(drawn.svg)
            width, height = (float(each) for each in svg.attrib["viewBox"].split()[2:])
            assert (width, height) == pytest.approx((72 * drawn.size[0], 72 * drawn.size[1]))
            for text in (each for each in svg.iter("text") if "transform" not in each.attrib):
                x, y = float(text.attrib["x"]), float(text.attrib["y"])
                wide = CHARACTER * float(text.attrib["font-size"]) * len(text.text or "")
                left = (
                    x - wide * {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]]
                )
                assert left >= 0.0 and left + wide <= width and 0.0 < y <= height, text.text


def test_a_missing_point_interrupts_a_line() -> None:
    axes = SvgAxes((2.0, 2.0), 0.5, "x")
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    axes.plot([0.0, 0.2, 0.4, 0.6, 0.8], [0.1, 0.2, float("nan"), 0.3, 0.4], color="#000000")
    runs = parsed(axes.svg()).findall("./g/polyline")
    assert [len(each.attrib["points"].split()) for each in runs] == [2, 2]


def test_a_page_needs_no_matplotlib() -> None:
    code = (
        "import sys\nfrom calibrant.quality_report import ReportContents, page\n"
        "page(ReportContents(title='m', metrics={'metrics': {'ece': {'value': 0.1, 'interval': [0.05, 0.2]}}}))\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
