"""Feedback of Seldon as labels: the true classes of a request's rows.

Sources: `SeldonIO/seldon-core`, `proto/prediction.proto` and `executor/logger/worker.go`. `response.meta.puid` is the id of the
request. A reward is a number of the caller's own choice, not a label.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from calibrant.contrib.ids import fitted
from calibrant.contrib.open_inference import seldon_array
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.ingest.cloudevents import Event
from calibrant_server.service.settings import Settings


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
        raise _error("", "object", "Received another type; expected feedback as JSON object.")
    truth = _member(document, "truth", "data")
    if not isinstance(truth, Mapping):
        return None
    request = _member(document, "response", "meta", "puid")
    if not isinstance(request, str):
        request = event.attributes.get("requestid")
    if not request:
        detail = "Received no response.meta.puid and no attribute requestid; expected the id of the request."
        raise _error("/response/meta/puid", "missing", detail)
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
        raise _error("/truth/data", "shape", detail)
    if truth.ndim == 2 and truth.shape[1] > 1:
        is_one = truth == 1
        if not (is_one.sum(axis=1) == 1).all() or not (is_one | (truth == 0)).all():
            detail = "Received a row that is not zeros with one 1; expected the class as one 1."
            raise _error("/truth/data", "one_hot", detail)
        return [int(each) for each in is_one.argmax(axis=1)]
    flat = truth.reshape(-1)
    if (flat != np.floor(flat)).any():
        raise _error("/truth/data", "integer", "Received a fraction; expected classes.")
    return [int(each) for each in flat]


def _member(document: Any, *names: str) -> Any:
    for name in names:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _error(pointer: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError([Violation(pointer, rule, detail)])
