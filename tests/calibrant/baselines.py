"""A metric of rows under each label policy, and of each named rater."""

from __future__ import annotations

from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.metrics import chosen
from calibrant.stability.rater_baselines import by_policy, of_raters


def rater_baselines(batch, slug, pane_query=None, raters=None):
    """The metric under each policy, and with `raters`, classes by name, that of each rater and the mean of theirs."""
    requested = pane_query or PaneQuery()
    chosen([slug])
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    result = {
        "metric": slug,
        "policies": by_policy(View(pane, requested, batch), slug),
        "n_majority_ties": pane.counts["n_majority_ties"],
    }
    return result | ({} if raters is None else of_raters(batch, slug, requested, raters))
