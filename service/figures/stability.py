"""Stability: a calibration error against the fraction of the data, under several raters and under one label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibrant_server.service.figures.base import (
    POLICIES,
    SERIES,
    data_of,
    dotted,
    dressed,
    image,
    legend,
    say_nothing,
    scope_of,
    sheet,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_stability(answer: dict[str, Any], media_type: str) -> bytes:
    """Return the figure of the curves of the response of `GET stability`."""
    return image(media_type, lambda: _figure(answer))


def _figure(answer: dict[str, Any]) -> Figure:
    scores = "errors of cases" if answer.get("source") == "cases" else scope_of(answer)
    lines = [
        data_of(answer),
        f"{scores}; {answer.get('subsets', '')} subsets of {_drawn_of(answer)}",
    ]
    if answer.get("disagreement") is not None:
        lines.append(f"raters disagree on {answer['disagreement']:.3f} of their pairs")
    lines += [
        _ratio(name, each)
        for name, each in (answer.get("ratio") or {}).items()
        if each.get("value") is not None
    ]
    name = str(answer.get("metric", ""))
    figure = sheet(answer, f"Stability of {name}", lines, (6.4, 5.6))
    axes = figure.subplots()
    dressed(axes, "fraction of the data", name)
    curves = answer.get("raters") or {}
    for (policy, about), (colour, style, marker) in zip(curves.items(), SERIES, strict=False):
        told = f"{POLICIES.get(policy, policy)}: TV {about['tv']['per_cent']:.3g} %"
        dotted(axes, answer["fractions"], about["curve"], colour, told, marker, style)
    if curves:
        axes.set_ylim(0, 1.35 * max(max(about["curve"]) for about in curves.values()) or 1.0)
    else:
        say_nothing(axes, answer)
    legend(axes, "upper right")
    return figure


def _drawn_of(answer: dict[str, Any]) -> str:
    """Return the population of the subsets, and the statistic of the curves if it is not the metric itself."""
    source, n, bins = answer.get("source"), answer.get("n_drawn"), answer.get("bins")
    if source == "replicates":
        return f"{n} replicates in {bins} bins" + (
            "" if answer.get("exact") else " (near the metric)"
        )
    if source == "sample":
        return f"{n} units of the stored sample of {answer.get('n_sample')}"
    if source == "cases":
        return f"{n} cases"
    return "the rows" if source else "data"


def _ratio(name: str, about: dict[str, Any]) -> str:
    low, high = about["interval"]
    return f"variation under {name}, divided by that under several: {about['value']:.2f} ({low:.2f} to {high:.2f})"
