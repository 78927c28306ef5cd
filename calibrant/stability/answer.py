"""How steady a calibration error is as data shrink, and what it is under every label policy.

The baselines of single raters stand here because they are what several raters are compared with. They are given for
any metric, also where its curve cannot be had.
"""

from __future__ import annotations

from typing import Any

from calibrant.metrics import chosen
from calibrant.stability.baselines import by_policy
from calibrant.stability.curves import stability
from calibrant.stability.subsets import binned_statistic
from calibrant.view import NotAnswerable, View


def stability_answer(
    view: View, slug: str, *, subsets: str = "nested", seed: int = 0, most_ratings: int | None = None
) -> dict[str, Any]:
    """Curves, total variation and its ratios, and baselines.

    Parameters
    ----------
    view, slug, subsets, seed : as in `stability`
    most_ratings : where given, curves are of statistics of equal-width bins only, and of so many ratings: the rest takes
        minutes, which nobody should wait for at a service

    Returns
    -------
    dict as `stability`, with scope, n, n_ratings, `baselines` and `n_majority_ties`; `raters` is None, with a `reason`,
    where there are no curves

    Raises
    ------
    CalibrationInputError
        As `stability`.
    """
    found: dict[str, Any] = {"metric": slug, "subsets": subsets, "reason": None}
    try:
        if most_ratings is not None:
            _refuse_costly(view, slug, most_ratings)
        found |= stability(view, slug, subsets=subsets, seed=seed)
    except NotAnswerable as refusal:
        found |= {"raters": None, "ratio": None, "reason": refusal.reason, "detail": refusal.detail}
    return {
        **found,
        "scope": view.scope,
        "n": view.counts["n_labelled"],
        "n_ratings": view.counts["n_ratings"],
        "baselines": by_policy(view, slug, seed),
        "n_majority_ties": view.counts["n_majority_ties"],
    }


def _refuse_costly(view: View, slug: str, most_ratings: int) -> None:
    if binned_statistic(view, chosen([slug])[0]) is None:
        raise NotAnswerable("not_from_bins", f"curves of {slug} take minutes; the library's `stability` draws them")
    size = view.counts["n_ratings"]
    if size > most_ratings:
        detail = f"curves of {size} ratings take too long, {most_ratings} are the most: a model's window has no such limit"
        raise NotAnswerable("too_many_ratings", detail)
