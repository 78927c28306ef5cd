"""How many there can be of what."""

from __future__ import annotations

from calibrant.input.columns import MOST_WEIGHT
from calibrant.laws.basis import Laws, weight_of
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    n = pane.counts
    labelled = n["n_labelled"]
    yield "counts: more labelled than predictions", labelled <= n["n_predictions"]
    yield "counts: fewer ratings than labelled", n["n_ratings"] >= 2 * labelled - n["n_one_rating"]
    for name in ("n_units", "n_majority_ties", "n_unit_from_row", "n_one_rating"):
        yield f"counts: {name} beyond the labelled", n[name] <= labelled
    yield "counts: labelled predictions without a unit", n["n_units"] > 0 or labelled == 0
    yield "counts: a weight out of range", 0 <= weight_of(pane) <= MOST_WEIGHT * labelled
