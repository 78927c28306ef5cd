"""Multi-label rows of `POST /v1/score`: independent events, each scored as a binary model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.multilabel import multilabel_report
from calibrant_server.service.ingest.body_reading import BodyReading
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, indexed
from calibrant_server.service.ingest.score_limits import reject_costly_score

_TAKEN = ("probabilities", "logits", "labels", "ids", "units", "cases", "weights")
MAX_LABELS = 100


def multilabel_scores(
    posted: ParsedBatch,
    reading: BodyReading,
    pane_query: PaneQuery,
    metrics: list[str],
    sent_bytes: int,
) -> Result:
    """Return the scores of each label and their means.

    Raises
    ------
    CalibrationInputError
        A column that multi-label rows do not have, or a value that is not allowed.
    BodyTooLarge
        The scores cost more than the bytes allow.
    """
    columns = {name: each for name, each in posted.columns.items() if each is not None}
    for name in columns:
        if name not in _TAKEN:
            detail = f"Received {name} of multi-label rows; expected {', '.join(_TAKEN)}."
            raise CalibrationInputError.at(f"/{name}", "not_taken", detail)
    n_labels = _width(columns)
    if n_labels > MAX_LABELS:
        detail = f"Received {n_labels} labels; expected at most {MAX_LABELS}. Send several batches."
        raise CalibrationInputError.at("/labels", "n_classes", detail)
    n_rows = n_labels * len(columns.get("labels", ()))
    bins = pane_query.bins * n_labels
    reject_costly_score(max(n_rows, 1), metrics, sent_bytes, bins=bins)
    arguments: dict[str, Any] = {
        "label_counts": None, "classes": reading.class_names, "normalize": False, "ignore_label": list(reading.ignored) or None,
        **dict.fromkeys(_TAKEN), **{name: indexed(each) for name, each in columns.items()},
    }  # fmt: skip
    try:
        return multilabel_report(arguments, pane_query, metrics).to_dict()
    except CalibrationInputError as error:
        raise error.each(posted.place) from error


def _width(columns: Mapping[str, Any]) -> int:
    """Return the number of labels, 1 where it is not yet known to be more."""
    labels = columns.get("labels")
    first = (
        labels[0] if labels is not None and hasattr(labels, "__getitem__") and len(labels) else 0
    )
    return len(first) if hasattr(first, "__len__") else 1
