"""Independent events of one row (multi-label) in the service: rows of a binary model whose slice `label` names the event.

Each event of a row is a prediction with the id `ROW/EVENT`; the row is its unit, because the events of a row depend on each other. So an
event has the metrics, the table and the temperature of a pane of the positive class, and labels by id, exactly-once batches, retention,
export and import are those of any binary model. The slice of all rows is the pooled (micro) average.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.client.results import Receipt
from calibrant.core.errors import CalibrationInputError
from calibrant.input.class_labels import is_missing
from calibrant.results import MultilabelReport
from calibrant.results.report import of_labels

if TYPE_CHECKING:
    from calibrant.client.synchronous import Model

KEY = "label"
# Events of one batch: each has a pane per time slice, of which a batch may touch 64.
EVENTS_PER_BATCH = 30
_PER_ROW = ("units", "cases", "event_times", "weights")


class MultilabelModel:
    """A model of independent events. Made by `Model.multilabel`.

    Declare it once: `PUT /v1/models/NAME` with `{"task": "binary", "classes": 2, "slices": {"label": ["car", "dog"]}}`.

    Parameters
    ----------
    model : the binary model
    names : of the events, in the order of the columns
    """

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self.model, self.names = model, [str(name) for name in names]
        if not self.names or len(set(self.names)) < len(self.names):
            detail = f"Received {len(self.names)} names, {len(set(self.names))} of them different; expected each event once."
            raise CalibrationInputError.at("/names", "n_classes", detail)

    def send(
        self,
        probabilities: Any = None,
        labels: Any = None,
        *,
        ids: Any,
        logits: Any = None,
        slices: Mapping[str, Any] | None = None,
        batch_id: str | None = None,
        wait: float = 0,
        **columns: Any,
    ) -> list[Receipt]:
        """Send rows now, and return the receipt of each part of the events.

        Parameters
        ----------
        probabilities, logits : (n, n_events), of the events themselves; one of them
        labels : (n, n_events) of 0 and 1, None or NaN where there is none yet. Default: none
        ids : (n,), of the rows
        slices, columns : as in `Model.send`, one value per row: `units` (default: the ids), `cases`, `event_times`, `weights`
        batch_id : under which each part counts once; parts have `.0`, `.1`, … behind it. Required to repeat a call.
        wait : seconds to wait until each part is merged
        """
        name = "probabilities" if logits is None else "logits"
        scores = self._matrix(name, probabilities if logits is None else logits)
        given = np.full(scores.shape, None) if labels is None else self._matrix("labels", labels)
        rows = {"units": ids, **columns}
        unknown = [each for each in rows if each not in _PER_ROW]
        if unknown:
            detail = (
                f"Received {unknown[0]!r:.60} of multi-label rows; expected {', '.join(_PER_ROW)}."
            )
            raise CalibrationInputError.at(f"/{unknown[0]}", "unknown_field", detail)
        receipts = []
        for part, places in enumerate(_parts(len(self.names))):
            long = self._long(ids, places, rows, slices or {})
            sent: dict[str, Any] = {
                name: scores[:, places].reshape(-1),
                "labels": _labels(given[:, places]),
            }
            own_id = None if batch_id is None else f"{batch_id}.{part}"
            receipts.append(self.model.send(batch_id=own_id, wait=wait, **sent, **long))
        return receipts

    def label(
        self, ids: Any, labels: Any, *, batch_id: str | None = None, wait: float = 0
    ) -> Receipt:
        """Send labels of rows that were sent before, and return the receipt.

        Parameters
        ----------
        ids : (n,), of the rows
        labels : (n, n_events) of 0 and 1; what is None or NaN is left out
        batch_id, wait : as in `Model.label`
        """
        given = _labels(self._matrix("labels", labels))
        pairs = [
            (each, label)
            for each, label in zip(self._ids(ids, self.names), given, strict=True)
            if label is not None
        ]
        return self.model.label(
            [each for each, _ in pairs], [label for _, label in pairs], batch_id=batch_id, wait=wait
        )

    def evaluate(
        self, metrics: str | Iterable[str] | None = None, **query: Any
    ) -> MultilabelReport:
        """Return metrics and temperature of each event in a window, and the means over events.

        Parameters
        ----------
        metrics, query : as in `Model.metrics`, without `slice` and `scope`
        """
        listed = metrics if metrics is None or isinstance(metrics, str) else list(metrics)
        of_event = {name: query | {"slice": f"{KEY}:{name}"} for name in self.names}
        reports = {name: self.model.metrics(listed, **each) for name, each in of_event.items()}
        window = {name: query[name] for name in ("window", "from_", "to", "raters", "ci") if name in query}  # fmt: skip
        fitted = {
            name: self.model.temperature(**window, slice=each["slice"])
            for name, each in of_event.items()
        }
        return of_labels(reports, fitted)

    def _matrix(self, name: str, values: Any) -> NDArray[Any]:
        found = np.asarray(values, object if name == "labels" else float)
        if found.ndim != 2 or found.shape[1] != len(self.names):
            detail = f"Received {name} of shape {found.shape}; expected (n, {len(self.names)}), one column per event."
            raise CalibrationInputError.at(f"/{name}", "shape", detail)
        return found

    def _ids(self, ids: Any, names: Sequence[str]) -> list[str]:
        # The event ends at the last slash: one in its name would let two rows share an id.
        ends = [name.replace("%", "%25").replace("/", "%2F") for name in names]
        return [f"{each}/{end}" for each in ids for end in ends]

    def _long(
        self, ids: Any, places: Sequence[int], rows: Mapping[str, Any], slices: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the columns of a part with one row per row and event."""
        names = [self.names[place] for place in places]
        long = {name: _repeated(each, len(names)) for name, each in rows.items()}
        own = {key: _repeated(each, len(names)) for key, each in slices.items()}
        labels = {KEY: names * len(list(ids))}
        return {"ids": self._ids(ids, names), **long, "slices": own | labels}

    def __repr__(self) -> str:
        return f"{self.model!r}.multilabel({self.names!r})"


def _parts(n: int) -> list[list[int]]:
    return [
        list(range(n))[start : start + EVENTS_PER_BATCH] for start in range(0, n, EVENTS_PER_BATCH)
    ]


def _labels(values: NDArray[Any]) -> list[Any]:
    """Return labels as 0, 1 or None; what is neither stays, so that the service names it."""
    return [None if is_missing(each) else _plain(each) for each in values.reshape(-1).tolist()]


def _plain(label: Any) -> Any:
    return int(label) if isinstance(label, bool) or label in (0, 1) else label


def _repeated(column: Any, times: int) -> Any:
    """Return each value of a column as often as a row has events."""
    return [each for each in column for _ in range(times)]
