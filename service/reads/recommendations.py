"""The shape of recommendations, in drift, alarms, temperature and calibration maps."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.actions import ACTIONS

# One source: the actions of the library.
Action = Literal[ACTIONS]  # type: ignore[valid-type]


class NextRequest(BaseModel):
    """The request that carries a recommendation out."""

    method: str
    path: str
    body: dict[str, Any] | None = Field(
        description="The body to send; null if it holds data that only the caller has."
    )


class Recommendation(BaseModel):
    """Recommended action for the model's calibration."""

    model_config = ConfigDict(extra="allow")

    action: Action | None = Field(
        description="Null if the window does not determine it; `reason` gives the cause."
    )
    reason: str = Field(description="Why, in sentences.")
    evidence: dict[str, Any] = Field(description="The numbers that the action depends on.")
    next: NextRequest | None = Field(None, description="Absent if there is nothing to do.")
