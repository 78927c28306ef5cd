"""A baseline that is posted: predictions with labels, or a packed pane, in place of a window of the model."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Literal

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.http.bodies import ARROW, JSON, NDJSON, PANE, Body
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.ingest.model_rules import checked_batch, rows_of_model
from calibrant_server.service.ingest.packed import UnpackingBudget
from calibrant_server.service.ingest.plain_columns import read_document
from calibrant_server.service.ingest.service import digest_of
from calibrant_server.service.ingest.update_packing import pack_pane
from calibrant_server.service.settings import Settings
from calibrant_server.workers.store.model_config import ModelConfig

MEDIA_TYPES = (JSON, NDJSON, ARROW, PANE)
SCORES = frozenset(("probabilities", "logits", "confidences", "predictions"))


@dataclass(frozen=True)
class BaselineContent:
    """What a posted baseline is filled from.

    Attributes
    ----------
    kind, packed : a batch of rows, or a pane
    window : from the first event time to the end of the last second, in seconds; empty without event times
    """

    kind: Literal["rows", "pane"]
    packed: bytes
    window: tuple[int, int] = (0, 0)

    def to_entry(self) -> dict[str, Any]:
        """Return the fields of the entry that makes the baseline."""
        return {
            "kind": self.kind,
            "packed": b64encode(self.packed).decode(),
            "content": digest_of(self.packed).hex(),
            "window": list(self.window),
        }


def window_document(body: Body, settings: Settings) -> Any:
    """Return the document of a body that names a window; None if it has the content itself."""
    if body.media_type != JSON:
        return None
    document = read_document(body.data, 3 * settings.max_rows + 100, settings.max_rows)
    has_scores = isinstance(document, dict) and not SCORES.isdisjoint(document)
    return None if has_scores else document


def baseline_content(body: Body, config: ModelConfig, settings: Settings) -> BaselineContent:
    """Return the checked content of a body.

    Raises
    ------
    CalibrationInputError
        A row or pane that the model does not accept, or no label.
    """
    if body.media_type == PANE:
        [packed] = pack_pane({"packed": body.data}, config, "", UnpackingBudget())
        return BaselineContent("pane", packed)
    posted = read_columns(body, settings)
    batch = rows_of_model(checked_batch(posted, config, False), posted, config, False).batch
    if not batch.row_total.any():
        detail = "Received predictions without any label; expected labels: a baseline is what later labels are compared with."
        raise CalibrationInputError.at("/labels", "labels_required", detail)
    return BaselineContent("rows", batch.pack(), _window(batch))


def _window(batch: Batch) -> tuple[int, int]:
    if batch.event_times is None:
        return 0, 0
    return int(batch.event_times.min() // 10**6), int(batch.event_times.max() // 10**6) + 1
