"""The recommended action of a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from calibrant.core.actions import ACTIONS
from calibrant.results.base import Result, may_say, says

# One source: the actions of the library.
Action = Literal[ACTIONS]  # type: ignore[valid-type]


@dataclass(frozen=True, kw_only=True, repr=False)
class NextRequest(Result):
    """The request that carries a recommendation out."""

    method: str
    path: str
    body: dict[str, Any] | None = says(
        "The body to send; null if it holds data that only the caller has."
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Recommendation(Result):
    """Recommended action for the model's calibration."""

    action: Action | None = says(
        "Null if the window does not determine it; `reason` gives the cause."
    )
    reason: str = says("Why, in sentences.")
    evidence: dict[str, Any] = says("The numbers that the action depends on.")
    next: NextRequest | None = may_say("Absent if there is nothing to do.")
