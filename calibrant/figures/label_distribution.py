"""Predictions against the distribution of their ratings: histograms of entropy gaps and of distances."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    GREY,
    INK,
    data_of,
    legend,
    new_figure,
    show_reason,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {
    "ent_ce": ("entropy of the ratings − entropy of the prediction (nats)", "mean_signed"),
    "dist_ce": ("total variation distance of prediction and ratings", "value"),
}


def draw_label_distribution(result: Result) -> Figure:
    """Return the figure of the response of `GET label-distribution`."""
    text = [
        f"{name} {result[slug]['value']:.4f}"
        for name, slug in (("EntCE", "ent_ce"), ("DistCE", "dist_ce"), ("RankCS", "rank_cs"))
        if (result.get(slug) or {}).get("value") is not None
    ]
    rank = result.get("rank_cs") or {}
    if rank.get("strict_pairs") is not None:
        text.append(
            f"of strictly ordered pairs {rank['strict_pairs']:.4f}; without ties {rank['untied_fraction']:.4f}"
        )
    lines = [
        f"{data_of(result)}; labels: shares of the ratings of each prediction",
        "; ".join(text),
    ]
    figure = new_figure(result, "Human uncertainty", lines, (6.4, 6.6))
    every = figure.subplots(2, 1)
    figure.subplots_adjust(hspace=0.38)
    for axes, (slug, (label, mean)) in zip(every, PANELS.items(), strict=True):
        style_axes(axes, label, "share of predictions")
        _draw(axes, result.get(slug) or {}, mean)
    return figure


def _draw(axes: Axes, estimate: Result, mean: str) -> None:
    histogram = estimate.get("histogram")
    if not histogram or estimate.get("value") is None:
        show_reason(axes, estimate)
        return
    total = sum(histogram["weight"])
    edges = histogram["edges"]
    shares = [weight / total for weight in histogram["weight"]]
    widths = [upper - lower for lower, upper in pairwise(edges)]
    axes.bar(edges[:-1], shares, [0.92 * width for width in widths], align="edge", color=BLUE)
    if edges[0] < 0:
        axes.axvline(
            0.0,
            color=GREY,
            linestyle=(0, (5, 4)),
            linewidth=1.2,
            label="as uncertain as its raters",
        )
    axes.axvline(estimate[mean], color=INK, linewidth=1.4, label=f"mean {estimate[mean]:.4f}")
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1.3 * max(shares))
    legend(axes, "upper right")
