"""The raters of a report: as of `GET raters`, and a reason instead of an error where a window has too many records."""

from __future__ import annotations

from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.results.raters import raters
from calibrant_server.workers.queries.declared import Declared, declared_query
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.kinds.raters import KIND as RATERS


class ReportRatersQuery(declared_query(raters)):  # type: ignore[misc]
    """The same as of `GET raters`."""

    kind: ClassVar[str] = "report_raters"


def compute(query: Declared, inputs: Inputs) -> Result:
    """Return the raters, or none with the reason."""
    try:
        return RATERS.compute(query, inputs)
    except CalibrationInputError as error:
        first = error.violations[0]
        return {"by_rater": {}, "reason": first.rule, "detail": first.detail}


KIND = ResultKind(ReportRatersQuery, compute, RATERS.accumulators, is_slow=RATERS.is_slow)
