"""Probability map of one class: its probabilities over the image, with contours of true and false positives and false negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.documents import Result
from calibrant.figures.base import BLUE, GREEN, ORANGE, SLATE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR_IN, PANEL_IN = 1.0, 4.2
PANELS_A_ROW = 3
# Where the image is shown through the map.
TRANSPARENCY = 0.6


def draw_probability_map(result: Result) -> Figure:
    """Return the map of a class with one panel per reference mask.

    Parameters
    ----------
    result : `probabilities` (height, width), `masks` by name (height, width), `image` (height, width) or None,
        `threshold`, `class`, and `counts` by mask: true_positive, false_negative, false_positive

    Source
    ------
    Barfoot et al., Average Calibration Losses, fig. 5.
    """
    masks = result["masks"]
    columns = min(len(masks), PANELS_A_ROW)
    rows = -(-len(masks) // columns)
    size = (PANEL_IN * columns + BAR_IN + 0.5, PANEL_IN * rows + 1.2)
    lines = [f"positive from {result['threshold']:g}; contours: {', '.join(_LABELS.values())}"]
    title = f"Probability of class {result['class']}"
    figure = new_figure({}, title, lines, size, left=0.3, right=BAR_IN, bottom=0.3, titles=0.3)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    shown: Any = None
    for axes, (name, mask) in zip(panels, masks.items(), strict=False):
        shown = _draw_panel(axes, result, mask)
        axes.set_title(
            f"{name}: {_counted(result['counts'][name])}",
            fontsize=8.5,
            color=SLATE,
            parse_math=False,
        )
    for axes in panels[len(masks) :]:
        axes.set_visible(False)
    place = panels[0].get_position()
    colour_bar_axes = figure.add_axes(
        (1.0 - (BAR_IN - 0.15) / size[0], place.y0, 0.15 / size[0], place.height)
    )
    bar = figure.colorbar(shown, cax=colour_bar_axes)
    bar.set_label("probability", color=SLATE, fontsize=8.5)
    bar.ax.tick_params(labelsize=8)
    return figure


def regions(probabilities: Any, mask: Any, threshold: float) -> Result:
    """Return true positives, false negatives and false positives, bool (height, width) each.

    Examples
    --------
    >>> found = regions(np.array([[0.9, 0.2]]), np.array([[0, 1]]), 0.5)
    >>> {name: each.tolist() for name, each in found.items()}
    {'true_positive': [[False, False]], 'false_negative': [[False, True]], 'false_positive': [[True, False]]}
    """
    predicted, marked = np.asarray(probabilities) >= threshold, np.asarray(mask).astype(bool)
    return {
        "true_positive": predicted & marked,
        "false_negative": ~predicted & marked,
        "false_positive": predicted & ~marked,
    }


def outline_length(probabilities: Any, mask: Any, threshold: float) -> int:
    """Return the number of sides of pixels at which a region of the map ends, the border of the image included.

    Examples
    --------
    >>> outline_length(np.array([[0.9, 0.2]]), np.array([[1, 0]]), 0.5)
    4
    """
    total = 0
    for region in regions(probabilities, mask, threshold).values():
        field = np.pad(region, 1)
        total += int((field[1:] != field[:-1]).sum()) + int((field[:, 1:] != field[:, :-1]).sum())
    return total


_LABELS = {
    "true_positive": "true positives (green, solid)",
    "false_negative": "false negatives (blue, dashed)",
    "false_positive": "false positives (orange, dotted)",
}
_LINES = {
    "true_positive": (GREEN, "solid"),
    "false_negative": (BLUE, "dashed"),
    "false_positive": (ORANGE, "dotted"),
}


def _draw_panel(axes: Axes, result: Result, mask: Any) -> Any:
    """Draw the map over the image, and the outline of each region that is not empty."""
    probabilities = np.asarray(result["probabilities"])
    if result.get("image") is not None:
        axes.imshow(np.asarray(result["image"]), cmap="gray", interpolation="nearest")
    shown = axes.imshow(
        probabilities,
        cmap="magma",
        vmin=0.0,
        vmax=1.0,
        interpolation="nearest",
        alpha=TRANSPARENCY if result.get("image") is not None else None,
    )
    for name, region in regions(probabilities, mask, result["threshold"]).items():
        if not region.any():
            continue
        # A margin of zeros closes the contours of regions that reach the border.
        field = np.pad(region.astype(np.float64), 1)
        x, y = np.arange(-1, region.shape[1] + 1), np.arange(-1, region.shape[0] + 1)
        colour, line = _LINES[name]
        contours = axes.contour(
            x, y, field, levels=[0.5], colors=[colour], linestyles=[line], linewidths=1.4
        )
        contours.set_gid(name)
    axes.set(xlim=(-0.5, probabilities.shape[1] - 0.5), ylim=(probabilities.shape[0] - 0.5, -0.5))
    axes.set_xticks([])
    axes.set_yticks([])
    return shown


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(
        f"{''.join(word[0] for word in name.split('_')).upper()} {n}" for name, n in counts.items()
    )
