"""An event of an inference server to columns of predictions, as the model declares them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from calibrant.contrib.ids import fitted
from calibrant.contrib.open_inference import Inference, decode
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.errors import BodyTooLarge
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.ingest.cloudevents import Event
from calibrant_server.service.ingest.event_settings import CloudEventSettings
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, some_of
from calibrant_server.service.settings import Settings

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
        raise _error("/cloudevents/output", "missing", detail)
    scores = found.tensors[name]
    if scores.dtype.kind not in "iuf" or scores.ndim not in (1, 2):
        detail = f"Received {scores.ndim} dimensions of {scores.dtype}; expected a number, or one per class, in each row."
        raise _error(f"/outputs/{name[:60]}", "shape", detail)
    if len(scores) > settings.max_rows:
        detail = f"Received an event of {len(scores)} rows; expected at most {settings.max_rows}."
        raise BodyTooLarge(detail)
    scores = scores.astype(np.float64)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim == 2:
        if declared.scores == "confidences":
            detail = f"Received {scores.shape[1]} values per row; expected one, since confidences are declared."
            raise _error(f"/outputs/{name[:60]}", "shape", detail)
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
            raise _error(pointer, "missing", detail)
        if isinstance(found, list) and len(found) != self.n_rows:
            detail = f"Received {len(found)} values of {reference}; expected {self.n_rows}, one per prediction."
            raise _error(pointer, "length", detail)
        return found


def _texts(tensors: Mapping[str, np.ndarray[Any, Any]], name: str, pointer: str) -> list[str]:
    """Return a tensor with one whole number or string per row as texts."""
    values = tensors.get(name)
    if values is None:
        listed = some_of(list(tensors))
        raise _error(pointer, "missing", f"Received tensors {listed}; expected {name} as well.")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "iuO":
        detail = f"Received {values.ndim} dimensions of {values.dtype}; expected a string or whole number per row."
        raise _error(pointer, "shape", detail)
    return [str(each) for each in values.tolist()]


def _error(pointer: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError([Violation(pointer, rule, detail)])
