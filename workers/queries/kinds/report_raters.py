"""The raters of a report: as of `GET raters`, Dice if there are cases, and a reason instead of an error where a window has too
many records."""

from __future__ import annotations

from typing import ClassVar

from calibrant.core.documents import Result, Row
from calibrant.core.errors import CalibrationInputError
from calibrant.results.raters import RatersQuery, raters
from calibrant.stability.rater_baselines import of_raters
from calibrant.stability.rater_differences import LabelsByRater
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.kinds.raters import KIND as RATERS
from calibrant_server.workers.queries.kinds.raters import rated, result_of
from calibrant_server.workers.queries.query import Declared, declared_query


class ReportRatersQuery(declared_query(raters)):  # type: ignore[misc]
    """The same as of `GET raters`."""

    kind: ClassVar[str] = "report_raters"


def compute(query: Declared, inputs: Inputs) -> Result:
    """Return the raters with `dice_by_rater`; none with the reason, and without reading records if no prediction has two
    ratings."""
    counts = inputs.pane.counts
    if counts["n_ratings"] == counts["n_labelled"]:
        return {"by_rater": {}, "reason": "one_rating"}
    try:
        rows = inputs.records.read()
    except CalibrationInputError as error:
        first = error.violations[0]
        return {"by_rater": {}, "reason": first.rule, "detail": first.detail}
    found = rated(rows, inputs.config.task)
    plain: RatersQuery = query.plain()
    return result_of(plain, inputs, rows, found) | {"dice_by_rater": _dice(found, plain)}


def _dice(found: LabelsByRater | None, query: RatersQuery) -> dict[str, Row]:
    """Return the Dice of the model against each rater; none without named cases."""
    if found is None or found.batch.cases is None:
        return {}
    compared = of_raters(found.batch, "dice", query.pane_query(), found.raters)
    by_rater: dict[str, Row] = compared["by_rater"]
    return by_rater


KIND = ResultKind(ReportRatersQuery, compute, RATERS.accumulators, is_slow=RATERS.is_slow)
