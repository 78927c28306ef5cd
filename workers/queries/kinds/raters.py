"""A metric of each named rater alone, with the label policies and the raters' disagreement, from retained records."""

from __future__ import annotations

from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.metrics import accumulators_for
from calibrant.raters.agreement import agreements, places_of
from calibrant.raters.odd_rater import odd_rater
from calibrant.report import raters_compared
from calibrant.results.raters import RatersQuery, raters
from calibrant.stability.rater_differences import LabelsByRater, rater_differences
from calibrant_server.workers.join.identified_rows import IdentifiedRows
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    reject_other_classes,
    side_name,
)
from calibrant_server.workers.queries.query import Declared, declared_query

MAX_RATERS = 64
_NOTHING = ("disagreement", "n_majority_ties", "policies", "mean_of_raters")


def compute(query: Declared, inputs: Inputs) -> Result:
    """The raters with most ratings, each with `value` and `n`; `mean_of_raters` is None, with a `reason`, where none is named.

    `n_labelled` counts the window; `n_records` counts those with an id, which all other values describe.
    """
    rows = inputs.records.read()
    return result_of(query.plain(), inputs, rows, rated(rows, inputs.config.task))


def compare(query: Declared, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same; each rater with the other side's value, the difference and its interval.

    Raises
    ------
    CalibrationInputError
        The other side stores no records, or is a model of another task or other classes.
    """
    if against.by in ("baseline", "reference"):
        detail = f"Received {against}; expected window:… or model:…: a {against.by} stores no records of raters."
        raise CalibrationInputError.at("/against", "not_comparable", detail)
    reject_other_classes(inputs.config, other.config)
    rows, others = inputs.records.read(share=3), other.records.read(share=3)
    mine, theirs = rated(rows, inputs.config.task), rated(others, other.config.task)
    plain: RatersQuery = query.plain()
    found = result_of(plain, inputs, rows, mine)
    if mine is not None:
        compared = rater_differences(mine, theirs, plain.slug, plain.requested(), inputs.seed)
        found["by_rater"] = {n: each | compared[n] for n, each in found["by_rater"].items()}
    about = side_name(against, other) | {
        "n_labelled": other.pane.counts["n_labelled"],
        "n_records": len(others),
        "n_raters": len(others.raters),
    }
    return found | {"against": about}


def result_of(
    query: RatersQuery, inputs: Inputs, rows: IdentifiedRows, rated: LabelsByRater | None
) -> Result:
    n_labelled, n_raters = inputs.pane.counts["n_labelled"], len(rows.raters)
    found: Result = {
        "metric": query.metric,
        "n_labelled": n_labelled,
        "n_records": len(rows),
        "n_raters": n_raters,
        "n_raters_over": max(0, n_raters - MAX_RATERS),
        "by_rater": {},
    }
    if rated is None:
        return found | dict.fromkeys(_NOTHING) | _why_nothing(n_labelled)
    raw = Pane(PaneSpec(rated.batch.task, rated.batch.n_classes), accumulators_for([query.metric]))
    raw.fill_batch(rated.batch)
    view = View(raw, query.requested(), rated.batch)
    compared = raters_compared(view, [query.slug], rated.raters)
    found |= {name: compared[name] for name in ("disagreement", "n_majority_ties")}
    found |= compared["metrics"][query.slug]
    batch = rated.batch
    agreed = agreements(rated.raters, batch.label_counts, places_of(batch.cases))
    found["by_rater"] = {name: each | agreed[name] for name, each in found["by_rater"].items()}
    found["odd_rater"] = odd_rater(rated.raters, batch.n_classes, BatchSums(batch).unit_index)
    if not n_raters:
        return found | {
            "reason": "no_named_raters",
            "detail": "no label of the window names its rater",
        }
    return found | {"reason": None}


def _names(rows: IdentifiedRows) -> list[str]:
    """Return the raters with most ratings, most first."""
    everyone = rows.raters
    return sorted(everyone, key=lambda name: (-everyone[name], name))[:MAX_RATERS]


def rated(rows: IdentifiedRows, task: str) -> LabelsByRater | None:
    """Return the rows with the raters that have most ratings; None without a row."""
    batch = rows.batch(task)
    if batch is None:
        return None
    return LabelsByRater(batch, {name: rows.classes_of(name) for name in _names(rows)})


def _why_nothing(n_labelled: int) -> dict[str, str]:
    if not n_labelled:
        return {"reason": "no_data", "detail": "no prediction of the window has a label"}
    detail = "no labelled prediction of the window has an id, so no record names its raters"
    return {"reason": "no_records", "detail": detail}


KIND = ResultKind(
    declared_query(raters), compute, lambda query: ["counts"], compare, is_slow=lambda query: True
)
