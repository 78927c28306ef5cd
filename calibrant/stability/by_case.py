"""Stability image by image: each case's error as its own pixels become fewer, then mean and sd over cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.documents import Result, Row
from calibrant.core.pane import Pane
from calibrant.core.view import NoResultError, View
from calibrant.inference.seeds import SEED
from calibrant.metrics import chosen
from calibrant.segmentation.single_cases import rows_of_cases
from calibrant.stability.curve_sources import curves_of
from calibrant.stability.curves import REFERENCES, total_variation
from calibrant.stability.rater_baselines import under
from calibrant.stability.subsets import FRACTIONS, draws_of


def stability_by_case(
    view: View,
    slug: str,
    *,
    subsets: str = "nested",
    seed: int = SEED,
    max_ratings: int | None = None,
) -> Result:
    """Return each case's error and its total variation over fractions of the case's pixels, under each label policy.

    Parameters
    ----------
    view : with raw rows and their cases
    slug : a metric of equal-width bins, under the view's query
    subsets, seed : as in `stability`
    max_ratings : maximum of ratings, to bound the time

    Returns
    -------
    dict, JSON-able: `raters` with, by policy, mean and population sd over cases of `full` (the error of the complete case) and of `tv`
    (the mean absolute step); `ratio` of the mean variation under each reference to that under the view's policy;
    `n_cases`, and `cases` with the same two numbers each.

    Raises
    ------
    NoResultError
        As `rows_of_cases`, `too_many_ratings`, or `not_from_bins`.

    Source
    ------
    Riera-Marin et al., table 2.
    """
    metric = chosen([slug])[0]
    if metric.equal_bins(view.pane_query) is None:
        detail = f"stability by case is of metrics of equal-width bins; {slug} with these options is none"
        raise NoResultError("not_from_bins", detail)
    batch, rows_by_case = rows_of_cases(view)
    ratings = int(batch.row_total.sum())
    if max_ratings is not None and ratings > max_ratings:
        detail = f"Received {ratings} ratings; at most {max_ratings}."
        raise NoResultError("too_many_ratings", detail)
    several = view.pane_query.raters
    policies = (several, *(policy for policy in REFERENCES if policy != several))
    cases: list[Row] = []
    for name, rows in rows_by_case.items():
        # The pixels of one image are the items that are drawn.
        own = replace(batch.take(rows), cases=None, units=None)
        result: Result = {"case": name, "n": own.n}
        try:
            result["raters"] = {
                policy: _variation(view, own, slug, policy, subsets, seed) for policy in policies
            }
        except NoResultError as rejection:
            result |= {"raters": None, "reason": rejection.reason}
        cases.append(result)
    return {
        "metric": slug,
        "scope": view.scope,
        "subsets": subsets,
        "fractions": FRACTIONS.tolist(),
        "n_cases": len(rows_by_case),
        **_summary([each["raters"] for each in cases if each["raters"]], policies),
        "cases": cases,
    }


def _variation(
    view: View, own: Batch, slug: str, policy: str, subsets: str, seed: int
) -> dict[str, float]:
    pane = Pane(view.spec)
    pane.fill_batch(own)
    case = under(View(pane, view.pane_query, own), policy)
    drawn, curves = curves_of(case, chosen([slug])[0])
    draws = draws_of(curves.n, 0, 1, subsets, np.random.default_rng(seed))
    curve = curves.curves(drawn, draws)[0]
    variation = total_variation(curve)["absolute"]
    assert variation is not None
    return {"full": float(curve[-1]), "tv": variation}


def _summary(found: list[Row], policies: tuple[str, ...]) -> Result:
    if not found:
        return {"raters": None, "ratio": None, "reason": "too_few_units"}
    means = {
        policy: {
            name: {"mean": float(values.mean()), "sd": float(values.std())}
            for name in ("full", "tv")
            for values in [np.array([each[policy][name] for each in found])]
        }
        for policy in policies
    }
    base = means[policies[0]]["tv"]["mean"]
    ratio = {
        policy: means[policy]["tv"]["mean"] / base if base else None for policy in policies[1:]
    }
    return {"raters": means, "ratio": ratio, "n_cases_counted": len(found)}
