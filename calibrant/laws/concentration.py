"""Of predictions with several votes; slopes agree with what they are slopes of."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators import concentration
from calibrant.laws.basis import Laws, inside, near, slack, square_within
from calibrant.laws.label_uncertainty import of_several
from calibrant.pane import Pane

_STEP = np.log(2.0)  # between concentrations, whose logarithm is what slopes are by


def laws(pane: Pane) -> Laws:
    several = pane.counts["n_labelled"] - pane.counts["n_one_rating"]
    block = pane["concentration"].blocks["profile"]
    profile = block.counts
    yield "concentration: predictions differ from counts", profile[0] == several
    yield "concentration: more impossible than predictions", profile[1] <= several
    kept = dict(zip(concentration.SUMS, block.sums, strict=True))
    weight, nll, slope, bend = (kept[name] for name in ("weight", "nll", "nll_d1", "nll_d2"))
    whole = of_several(pane)["weight"].sum()
    ratings = of_several(pane, "_by_ratings")["weight"].sum()
    further = max(ratings - whole, 0.0)  # ratings beyond the first of each prediction
    yield "concentration: more weight than predictions", inside(0.0, weight, whole, whole)
    if not profile[1].any():
        yield "concentration: weight differs from label_uncertainty", near(weight, whole, whole)
    for name in ("weight", "nll_limit"):
        yield f"concentration: {name} depends on the concentration", near(kept[name], kept[name][0], ratings)
        yield f"concentration: {name} is negative", kept[name] >= -slack(ratings)
    yield "concentration: a negative nll", nll >= -slack(ratings)
    yield "concentration: nll_d1 beyond the ratings", np.abs(slope) <= further + slack(ratings)
    yield "concentration: nll_d2 beyond the ratings", np.abs(bend) <= further / 4.0 + slack(ratings)
    for name, values, rate, bound in (("nll", nll, slope, 0.0963), ("nll_d1", slope, bend, 0.125)):
        rise = np.diff(values)
        wanted = _STEP * (rate[1:] + rate[:-1]) / 2.0
        most = _STEP**3 / 12.0 * 2.0 * bound * further  # error of the trapezoid rule
        agree = np.abs(rise - wanted) <= most + slack(np.abs(values[1:]) + ratings)
        yield f"concentration: {name} rises otherwise than its slopes", agree
    n_units = pane.counts["n_units"]
    yield (
        "concentration: nll_d1_squared below the square of the slope",
        square_within(slope, n_units, kept["nll_d1_squared"], np.abs(slope) + ratings),
    )
