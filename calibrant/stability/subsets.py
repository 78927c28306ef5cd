"""Subsets of a stability curve: fractions, and the orders in which items are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibrant.core.arrays import Floats, Ints
from calibrant.core.documents import Extra
from calibrant.core.view import NoResultError, View

FRACTIONS = np.arange(4, 21) / 20.0
SUBSETS = ("nested", "independent")
# Affordable orders of each resample where subsets are sums.
N_ORDERS = 16


@dataclass(frozen=True)
class Draws:
    """Draws of n items: `order` int64 (n_draws, 17 or 1, n); a subset of size s takes the first s.

    With one order per draw, the subsets are nested.
    """

    order: Ints
    sizes: Ints

    @property
    def nested(self) -> bool:
        return bool(self.order.shape[1] == 1)

    def subset(self, draw: int, step: int) -> Ints:
        """Return the items in the subset of a fraction."""
        return self.order[draw, 0 if self.nested else step, : self.sizes[step]]

    def times(self, step: int) -> Floats:
        """Return how often the subsets of a fraction contain each item, float64 (n_draws, n)."""
        n_draws, _, n = self.order.shape
        taken = self.order[:, 0 if self.nested else step, : self.sizes[step]]
        place = taken + n * np.arange(n_draws)[:, None]
        return np.bincount(place.ravel(), minlength=n * n_draws).reshape(-1, n).astype(np.float64)


@dataclass(frozen=True)
class CurveSource:
    """How a metric's curves are computed.

    Attributes
    ----------
    curves : of a view under a policy and draws, float64 (n_draws, 17)
    n : number of items to draw
    n_orders : number of affordable orders of each resample
    about : their description in the result, as JSON values
    one_by_one : whether the metric is computed again for each of the subsets; resamples have thousands of them
    """

    curves: Callable[[View, Draws], Floats]
    n: int
    n_orders: int
    about: Extra
    one_by_one: bool = False


def by_fraction(
    values: Callable[[View, Draws, int], Floats],
) -> Callable[[View, Draws], Floats]:
    """Return curves, (n_draws, 17), from the values of all subsets of one fraction, (n_draws,); nan where one has none.

    Raises
    ------
    NoResultError
        A subset has no value.
    """

    def curves(view: View, draws: Draws) -> Floats:
        steps = range(len(FRACTIONS))
        found = np.stack([values(view, draws, step) for step in steps], axis=1)
        if np.isnan(found).any():
            raise NoResultError("no_data", f"a subset of {draws.sizes[0]} or more has no value")
        return found

    return curves


def draws_of(
    n: int, n_resamples: int, n_orders: int, subsets: str, rng: np.random.Generator
) -> Draws:
    """Return orders of resamples of n items, several per resample; without resamples, orders of the items.

    Independent subsets have one order each.
    """
    items = rng.integers(n, size=(n_resamples, n)) if n_resamples else np.arange(n)[None]
    each = len(FRACTIONS) if subsets == "independent" else 1
    order = rng.permuted(
        np.repeat(np.repeat(items, n_orders, axis=0)[:, None], each, axis=1), axis=2
    )
    return Draws(order, np.maximum(np.rint(FRACTIONS * n), 1).astype(np.int64))
