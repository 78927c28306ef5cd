"""Stability: a calibration error against the fraction of the data, under several raters and under one label."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result
from calibrant.figures.base import (
    POLICIES,
    SERIES,
    data_of,
    dotted,
    legend,
    new_figure,
    scope_of,
    show_reason,
    style_axes,
)
from calibrant.figures.numbers import plain_number
from calibrant.metrics import title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LEGEND_CHARACTERS = 70


def draw_stability(result: Result) -> Figure:
    """Return the figure of the curves of the response of `GET stability`."""
    scores = "errors of cases" if result.get("source") == "cases" else scope_of(result)
    name = title_of(str(result.get("metric", "")))
    lines = [
        name,
        data_of(result),
        f"{scores}; {result.get('subsets', '')} subsets of {_drawn_of(result)}",
    ]
    if result.get("disagreement") is not None:
        lines.append(f"raters disagree on {result['disagreement']:.3f} of their pairs")
    lines += [
        _ratio(policy, each)
        for policy, each in (result.get("ratio") or {}).items()
        if each.get("value") is not None
    ]
    figure = new_figure(result, "Stability", lines, (6.4, 5.6))
    axes = figure.subplots()
    style_axes(axes, "fraction of the data", name)
    curves = result.get("raters") or {}
    for (policies, about), (colour, style, marker) in zip(_distinct(curves), SERIES, strict=False):
        text = f"{policies}: total variation {plain_number(about['tv']['per_cent'])} %"
        label = textwrap.fill(text, LEGEND_CHARACTERS)
        dotted(axes, result["fractions"], about["curve"], colour, label, marker, style)
    if curves:
        axes.set_ylim(0, 1.35 * max(max(about["curve"]) for about in curves.values()) or 1.0)
    else:
        show_reason(axes, result)
    legend(axes, "upper right")
    return figure


def _distinct(curves: Result) -> list[tuple[str, Any]]:
    """Return each curve once, under the names of all policies that share it: with one rater they are the same."""
    found: list[tuple[list[str], Any]] = []
    for policy, about in curves.items():
        name = POLICIES.get(policy, policy)
        same = next((names for names, other in found if other["curve"] == about["curve"]), None)
        if same is None:
            found.append(([name], about))
        else:
            same.append(name)
    return [(" = ".join(names), about) for names, about in found]


def _drawn_of(result: Result) -> str:
    """Return the population of the subsets, and the statistic of the curves if it is not the metric itself."""
    source, n, bins = result.get("source"), result.get("n_drawn"), result.get("bins")
    if source == "replicates":
        return f"{n} replicates in {bins} bins" + (
            "" if result.get("exact") else " (near the metric)"
        )
    if source == "sample":
        return f"{n} units of the stored sample of {result.get('n_sample')}"
    if source == "cases":
        return f"{n} cases"
    return "the rows" if source else "data"


def _ratio(name: str, about: Result) -> str:
    low, high = about["interval"]
    return f"variation under {name}, divided by that under several: {about['value']:.2f} ({low:.2f} to {high:.2f})"
