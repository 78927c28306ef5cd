"""Reliability diagram of predicted disagreement, with the distribution of predictions below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    ORANGE,
    bars,
    curve_and_scores,
    density,
    diagonal,
    dotted,
    legend,
    new_figure,
    show_reason,
    style_axes,
    unit_square,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_disagreement(result: Result) -> Figure:
    """Return the diagram of the response of `GET disagreement`.

    The predicted probability of disagreement is 1 - sum z^2; every pair of ratings counts.
    """
    lines = [
        f"n = {result.get('n') or 0:,} predictions with two ratings or more; labels: pairs of ratings",
        _measures(result),
    ]
    figure = new_figure(result, "Disagreement", lines, (6.0, 7.0))
    curve, scores = curve_and_scores(figure)
    rows = [row for row in result.get("reliability") or [] if row.get("predicted") is not None]
    diagonal(curve)
    style_axes(curve, "", "observed disagreement")
    style_axes(scores, "predicted probability that two raters disagree", "share")
    if rows:
        predicted, observed = ([row[name] for row in rows] for name in ("predicted", "observed"))
        bars(curve, predicted, [row["interval"] for row in rows], result.get("ci"))
        dotted(curve, predicted, observed, BLUE, "observed")
        alpha0 = (result.get("concentration") or {}).get("value")
        if alpha0 is not None:
            _draw_after(curve, predicted, observed, alpha0)
    else:
        show_reason(curve, result)
    density(scores, rows)
    unit_square(curve)
    legend(curve)
    return figure


def _draw_after(curve: Any, predicted: list[float], observed: list[float], alpha0: float) -> None:
    """Draw the same bins under a Dirichlet of the fitted concentration around the predictions."""
    factor = alpha0 / (alpha0 + 1.0)
    label = f"with the fitted concentration, {alpha0:.3g}"
    dotted(curve, [factor * each for each in predicted], observed, ORANGE, label, "s", "--")


def _measures(result: Result) -> str:
    text = [
        f"{name} {result[field]:.4f}"
        for name, field in (
            ("loss", "disagreement_loss"),
            ("CE", "disagreement_ce"),
            ("observed", "rater_disagreement"),
        )
        if result.get(field) is not None
    ]
    return "; ".join([*text, f"{result.get('bins', '')} bins"])
