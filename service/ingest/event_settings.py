"""How a model reads CloudEvents: declared with its settings, since logits cannot be distinguished from probabilities by their range."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.http.parameters import Name

REFERENCE = r"^(event|header|input|output):[^\s:]{1,120}$|^body:id$"
Reference = Annotated[str, Field(pattern=REFERENCE)]


class CloudEventSettings(BaseModel):
    """How CloudEvents of an inference server become predictions.

    A reference names a value: `event:NAME` an attribute of the event, `header:NAME` a header in its attribute `metadata`,
    `body:id` the id of a version 2 body, `output:NAME` or `input:NAME` a tensor of the response or request with one value
    per row. With an input, response and request are joined by their id.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    scores: Literal["probabilities", "logits", "confidences"] = Field(
        description="Content of the output."
    )
    output: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="Tensor, or member of a prediction, with the scores. Default: the only one.",
    )
    ids: Reference = Field(
        "event:id",
        description="Ids of predictions. One value per event is followed by `:` and the row.",
    )
    units: Reference | None = None
    slices: dict[Name, Reference] = Field({}, max_length=16)

    @property
    def references(self) -> list[str]:
        """Return every reference."""
        units = [] if self.units is None else [self.units]
        return [self.ids, *units, *self.slices.values()]

    @property
    def inputs(self) -> set[str]:
        """Return the names of the tensors of a request that are needed."""
        found = (each.partition(":") for each in self.references)
        return {name for kind, _, name in found if kind == "input"}
