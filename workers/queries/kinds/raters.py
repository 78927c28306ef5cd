"""A metric of each named rater alone, beside the label policies and the raters' disagreement, from retained records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.input.labels import WITHDRAWN
from calibrant.report import question_of, raters_compared
from calibrant_server.workers.alarm.rows import CohortRows, batch_of
from calibrant_server.workers.queries.window_records import WindowRecords

MAX_RATERS = 64
_NOTHING = ("disagreement", "n_majority_ties", "policies", "mean_of_raters")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Of panes the counts alone: everything else is computed of the records."""
    return ["counts"]


def is_slow(params: dict[str, Any]) -> bool:
    """All records of the model are looked through."""
    return True


def answer(
    pane: Pane, config: Any, params: dict[str, Any], seed: int, records: WindowRecords
) -> dict[str, Any]:
    """The raters who rated most, each with `value` and `n`; `mean_of_raters` is None, with a `reason`, where nobody is named.

    `n_labelled` is of the window, `n_records` those of them that came with an id, which is what all else is about.
    """
    rows = records.read()
    slug, everyone = params["metric"], rows.raters
    names = sorted(everyone, key=lambda name: (-everyone[name], name))[:MAX_RATERS]
    told: dict[str, Any] = {
        "metric": slug,
        "n_labelled": pane.counts["n_labelled"],
        "n_records": len(rows.facts),
        "n_raters": len(everyone),
        "n_raters_over": len(everyone) - len(names),
        "by_rater": {},
    }
    batch = batch_of(rows, config.task, as_sent=True)
    if batch is None:
        return told | dict.fromkeys(_NOTHING) | _why_nothing(told["n_labelled"])
    raw = Pane(PaneSpec(batch.task, batch.n_classes))
    raw.fill_batch(batch)
    asked = {name: value for name, value in params.items() if name != "metric"}
    view = View(raw, question_of(asked), batch)
    found = raters_compared(view, [slug], {name: classes_of(rows, name) for name in names})
    told |= {name: found[name] for name in ("disagreement", "n_majority_ties")}
    told |= found["metrics"][slug]
    if not names:
        return told | {
            "reason": "no_named_raters",
            "detail": "no label of the window names its rater",
        }
    return told | {"reason": None}


def _why_nothing(n_labelled: int) -> dict[str, str]:
    if not n_labelled:
        return {"reason": "no_data", "detail": "no prediction of the window has a label"}
    detail = "no labelled prediction of the window came with an id, so no record says who rated it"
    return {"reason": "no_records", "detail": detail}


def classes_of(rows: CohortRows, rater: str) -> NDArray[np.int64]:
    """A rater's class for every row, int64 (n,), -1 where he gave none or took it away."""
    ratings = [facts.ratings.get(rater) for _, facts in rows.facts]
    return np.array([WITHDRAWN if each is None else each.klass for each in ratings], np.int64)
