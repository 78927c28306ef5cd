"""Baselines: windows frozen under a name, for later comparisons."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

import orjson
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.engine import Connection
from calibrant_server.service.http.bodies import ARROW, JSON, NDJSON, PANE, Body, read_body
from calibrant_server.service.http.parameters import BaselineName
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.http.problems import AnswerLate, BaselineConflict, BaselineUnknown
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.columns import read_columns, read_document
from calibrant_server.service.ingest.model_rules import checked_batch, rows_of_model
from calibrant_server.service.ingest.multilabel import prediction_cells
from calibrant_server.service.ingest.parsed_batch import object_of
from calibrant_server.service.ingest.schemas import PredictionRecord, PredictionsBody, RecordsBody
from calibrant_server.service.ingest.service import IngestService, digest_of
from calibrant_server.service.ingest.update_packing import UnpackingBudget, pack_pane
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.operations import (
    Access,
    Admin,
    Created,
    Operations,
    Page,
    Reader,
)
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.representations import WindowShown
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.entries import BASELINE, IngestBatch
from calibrant_server.workers.queries.kinds.counts import CountsQuery
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchReceipt
from calibrant_server.workers.store.model_config import BaselineRecord, ModelConfig
from calibrant_server.workers.store.windows import Window, rfc3339

router = Operations("baselines")

EVENT = "event"
WAIT_S = 20.0


class BaselineResponse(BaseModel):
    """A baseline."""

    model_config = ConfigDict(extra="allow")

    name: str
    window: WindowShown
    slice: str | None = None
    clock: str = Field(
        description="`event`: at the time of freezing; `sealed`: at the label horizon."
    )
    created_at: str
    n_predictions: int | None = None
    n_labelled: int | None = None


BASELINE_ID = ("name", BaselineName)
BASELINES = Collection(
    router,
    "/v1/models/{model}/baselines",
    "baselines",
    BaselineResponse,
    Reader,
    "A page of baselines",
)


@BASELINES.lists()
async def list_baselines(access: Access) -> Page:
    """List the baselines of a model, sorted by name."""
    known = await access.connection.inbox.baselines(await access.config())
    return BASELINES.paged(
        access, known, lambda name: [name], lambda name: shown(name, known[name])
    )


@BASELINES.returns(BASELINE_ID, "The baseline")
async def get_baseline(access: Access) -> dict[str, Any]:
    """Return a baseline."""
    return await _known(access.connection, await access.config(), access.id)


@router.operation(
    "PUT /v1/models/{model}/baselines/{name}",
    Admin,
    {201: success(BaselineResponse, "The baseline, frozen", Location="The baseline.")},
    409,
    id=BASELINE_ID,
    takes_=takes(
        "The window to freeze, as in the query of a read; or its content",
        {
            JSON: (ClockQuery, PredictionsBody, RecordsBody),
            NDJSON: PredictionRecord,
            ARROW: None,
            PANE: None,
        },
    ),
)
async def put_baseline(access: Access) -> Created:
    """Freeze a window under a name, once all earlier batches are merged; or predictions with labels, or a packed pane.

    The name `reference` is the past of the model: the rule of change compares live data with it from the first cohort.
    """
    config, ingest, name = await access.config(), access.ingest, access.id
    with ingest.admission.hold() as hold:
        body = await read_body(access.request, ingest.settings, hold, MEDIA_TYPES)
        document = window_document(body, ingest.settings)
        payload: dict[str, Any] = {"op": "freeze", "name": name}
        if document is None:
            content = await in_thread(baseline_content, body, config, ingest.settings)
            payload |= {"slice": None, "clock": EVENT, **content.to_entry()}
        else:
            view = validated(ClockQuery, object_of(document))
            payload |= await _frozen_window(access.reads, config, view)
    receipt = await _done(ingest, config, payload)
    if receipt.status != batch_records.MERGED:
        errors = [Violation(**each) for each in receipt.errors]
        raise BaselineConflict(errors[-1].detail if errors else None, errors=errors)
    location = f"/v1/models/{config.model}/baselines/{name}"
    return Created(await _known(access.connection, config, name), location)


@BASELINES.deletes(BASELINE_ID, "The baseline is deleted", Admin)
async def delete_baseline(access: Access) -> None:
    """Delete a baseline."""
    config = await access.config()
    await _known(access.connection, config, access.id)
    await _done(access.ingest, config, {"op": "remove", "name": access.id})


def shown(name: str, stored: BaselineRecord) -> dict[str, Any]:
    """Return a baseline for a response."""
    created = datetime.fromtimestamp(stored["created_ms"] / 1000, UTC)
    return {
        "name": name,
        "window": Window(*stored["window"]).to_dict(),
        "slice": stored["slice"],
        "clock": stored["clock"],
        "created_at": rfc3339(created),
        **stored["counts"],
    }


async def _frozen_window(
    reads: ReadService, config: ModelConfig, view: ClockQuery
) -> dict[str, Any]:
    """Return the fields of the entry that freezes a window."""
    read_query = ReadQuery(CountsQuery(), config, view)
    window = await reads.window(read_query)
    return {
        "slice": view.slice,
        "clock": view.clock,
        "stored": read_query.slice_name,
        "window": [window.from_s, window.to_s],
    }


async def _known(connection: Connection, config: ModelConfig, name: str) -> dict[str, Any]:
    known = await connection.inbox.baselines(config)
    if name not in known:
        listed = ", ".join(known) or "none"
        raise BaselineUnknown(f"The model has no baseline {name!r}; known: {listed}.")
    return shown(name, known[name])


async def _done(
    ingest: IngestService, config: ModelConfig, requested: dict[str, Any]
) -> BatchReceipt:
    """Enqueue an entry and wait for its outcome."""
    payload = orjson.dumps(requested)
    batch_id = f"baseline-{uuid4().hex}"
    delivery = IngestBatch.of(config, batch_id, BASELINE, payload, digest_of(payload), 1)
    await ingest.enqueue(delivery)
    receipt = await ingest.inbox.wait_merged(config.key, batch_id, WAIT_S, was_there=True)
    if not receipt.is_final:
        raise AnswerLate()
    return receipt


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
    document = read_document(body.data, settings.max_objects, settings.max_rows)
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
    if config.label_names is not None:
        posted = prediction_cells(posted, config.label_names, settings.max_rows)
    batch = rows_of_model(checked_batch(posted, config, False), posted, config, False).batch
    if not batch.row_total.any():
        detail = "Received predictions without any label; expected labels: a baseline is what later labels are compared with."
        raise CalibrationInputError.at("/labels", "labels_required", detail)
    return BaselineContent("rows", batch.pack(), _window(batch))


def _window(batch: Batch) -> tuple[int, int]:
    if batch.event_times is None:
        return 0, 0
    return int(batch.event_times.min() // 10**6), int(batch.event_times.max() // 10**6) + 1
