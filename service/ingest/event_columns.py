"""An event of an inference server: to columns of predictions, as the model declares them, or to labels of feedback.

Scores are declared, since logits cannot be distinguished from probabilities by their range. Feedback is that of Seldon
(`SeldonIO/seldon-core`, `proto/prediction.proto` and `executor/logger/worker.go`): `response.meta.puid` is the id of the
request. A reward is a number of the caller's own choice, not a label.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field

from calibrant.contrib.ids import fitted
from calibrant.contrib.open_inference import Inference, decode, seldon_array
from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.errors import BodyTooLarge
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import Name
from calibrant_server.service.ingest.cloudevents import Event
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, some_of
from calibrant_server.service.settings import Settings

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


Inputs = Mapping[str, list[str]]


def inference_of(event: Event, settings: Settings) -> Inference:
    """Return the arrays in the data of an event."""
    loads = partial(read_json, max_objects=3 * settings.max_rows + 100)
    return decode(event.data if event.data is not None else b"", loads=loads)


def event_inputs(event: Event, declared: CloudEventSettings, settings: Settings) -> Inputs:
    """Return the declared inputs of a request, one text per row."""
    tensors = inference_of(event, settings).tensors
    return {
        name: _texts(tensors, name, f"/cloudevents/input/{name}")
        for name in sorted(declared.inputs)
    }


def event_columns(
    event: Event, declared: CloudEventSettings, inputs: Inputs, settings: Settings
) -> ParsedBatch:
    """Return the columns of a response.

    Parameters
    ----------
    inputs : what the request of the same id holds

    Raises
    ------
    CalibrationInputError
        The output, or a declared value, is missing or of another form.
    BodyTooLarge
        More rows than a batch may have.
    """
    found = inference_of(event, settings)
    name, scores = _scores(found, declared, settings)
    references = _References(event, found, inputs, len(scores))
    columns = {name: scores, "ids": references.ids(declared.ids)}
    if "time" in event.attributes:
        columns["event_times"] = [event.attributes["time"]] * len(scores)
    if declared.units is not None:
        columns["units"] = references.column(declared.units)
    if declared.slices:
        columns["slices"] = {key: references.column(each) for key, each in declared.slices.items()}
    return ParsedBatch(columns, event.batch_id)


def _scores(
    found: Inference, declared: CloudEventSettings, settings: Settings
) -> tuple[str, np.ndarray[Any, Any]]:
    """Return the name of the column of scores, and its values."""
    name = declared.output
    if name is None and len(found.tensors) == 1:
        name = next(iter(found.tensors))
    if name is None or name not in found.tensors:
        listed = some_of(list(found.tensors))
        detail = f"Received outputs {listed}; expected {name or 'one'}. Declare it as `cloudevents.output`."
        raise CalibrationInputError.at("/cloudevents/output", "missing", detail)
    scores = found.tensors[name]
    if scores.dtype.kind not in "iuf" or scores.ndim not in (1, 2):
        detail = f"Received {scores.ndim} dimensions of {scores.dtype}; expected a number, or one per class, in each row."
        raise CalibrationInputError.at(f"/outputs/{name[:60]}", "shape", detail)
    if len(scores) > settings.max_rows:
        detail = f"Received an event of {len(scores)} rows; expected at most {settings.max_rows}."
        raise BodyTooLarge(detail)
    scores = scores.astype(np.float64)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim == 2:
        if declared.scores == "confidences":
            detail = f"Received {scores.shape[1]} values per row; expected one, since confidences are declared."
            raise CalibrationInputError.at(f"/outputs/{name[:60]}", "shape", detail)
        return declared.scores, scores
    if (
        declared.scores == "logits"
    ):  # of class 1 against class 0: softmax of (0, z) is the sigmoid of z
        return "logits", np.stack([np.zeros_like(scores), scores], axis=1)
    return "confidences", scores


class _References:
    """Values that references name, one per row."""

    def __init__(self, event: Event, found: Inference, inputs: Inputs, n_rows: int) -> None:
        self.event, self.found, self.inputs, self.n_rows = event, found, inputs, n_rows

    def ids(self, reference: str) -> list[str]:
        """Return an id per row."""
        found = self._value(reference)
        if isinstance(found, str):
            found = [f"{found}:{row}" for row in range(self.n_rows)]
        return [fitted(each) for each in found]

    def column(self, reference: str) -> list[str]:
        """Return the value of each row."""
        found = self._value(reference)
        found = [found] * self.n_rows if isinstance(found, str) else found
        return [fitted(each) for each in found]

    def _value(self, reference: str) -> str | list[str]:
        kind, _, name = reference.partition(":")
        pointer = f"/cloudevents/{kind}/{name}"
        found: str | list[str] | None = None
        if kind == "event":
            found = self.event.attributes.get(name.lower())
        elif kind == "header":
            found = self.event.headers.get(name.lower())
        elif kind == "body":
            found = self.found.id
        elif kind == "output":
            found = _texts(self.found.tensors, name, pointer)
        else:
            found = self.inputs.get(name)
        if found is None:
            detail = f"Received no {reference}; the model declares it. Send it, or change its setting `cloudevents`."
            raise CalibrationInputError.at(pointer, "missing", detail)
        if isinstance(found, list) and len(found) != self.n_rows:
            detail = f"Received {len(found)} values of {reference}; expected {self.n_rows}, one per prediction."
            raise CalibrationInputError.at(pointer, "length", detail)
        return found


def _texts(tensors: Mapping[str, np.ndarray[Any, Any]], name: str, pointer: str) -> list[str]:
    """Return a tensor with one whole number or string per row as texts."""
    values = tensors.get(name)
    if values is None:
        listed = some_of(list(tensors))
        raise CalibrationInputError.at(
            pointer, "missing", f"Received tensors {listed}; expected {name} as well."
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "iuO":
        detail = f"Received {values.ndim} dimensions of {values.dtype}; expected a string or whole number per row."
        raise CalibrationInputError.at(pointer, "shape", detail)
    return [str(each) for each in values.tolist()]


def feedback_labels(event: Event, settings: Settings) -> Body | None:
    """Return the labels in a feedback event as a body of labels; None if it has no truth.

    Raises
    ------
    CalibrationInputError
        The truth is of another form, or the event does not name its request.
    """
    document = event.data
    if isinstance(document, bytes):
        document = read_json(document, 3 * settings.max_rows + 100)
    if not isinstance(document, Mapping):
        raise CalibrationInputError.at(
            "", "object", "Received another type; expected feedback as JSON object."
        )
    truth = _member(document, "truth", "data")
    if not isinstance(truth, Mapping):
        return None
    request = _member(document, "response", "meta", "puid")
    if not isinstance(request, str):
        request = event.attributes.get("requestid")
    if not request:
        detail = "Received no response.meta.puid and no attribute requestid; expected the id of the request."
        raise CalibrationInputError.at("/response/meta/puid", "missing", detail)
    classes = _classes(seldon_array(truth, "/truth/data"))
    document = {
        "batch_id": event.batch_id,
        "ids": [fitted(f"{request}:{row}") for row in range(len(classes))],
        "labels": classes,
    }
    return Body(JSON, orjson.dumps(document))


def _classes(truth: np.ndarray[Any, Any]) -> list[int]:
    """Return the class of each row, from classes or from rows with one 1."""
    if truth.dtype.kind not in "iufb" or truth.ndim not in (1, 2) or not np.isfinite(truth).all():
        detail = f"Received {truth.ndim} dimensions of {truth.dtype}; expected a class, or one 1, per row."
        raise CalibrationInputError.at("/truth/data", "shape", detail)
    if truth.ndim == 2 and truth.shape[1] > 1:
        is_one = truth == 1
        if not (is_one.sum(axis=1) == 1).all() or not (is_one | (truth == 0)).all():
            detail = "Received a row that is not zeros with one 1; expected the class as one 1."
            raise CalibrationInputError.at("/truth/data", "one_hot", detail)
        return [int(each) for each in is_one.argmax(axis=1)]
    flat = truth.reshape(-1)
    if (flat != np.floor(flat)).any():
        raise CalibrationInputError.at(
            "/truth/data", "integer", "Received a fraction; expected classes."
        )
    return [int(each) for each in flat]


def _member(document: Any, *names: str) -> Any:
    for name in names:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document
