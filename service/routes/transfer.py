"""Import of a complete model that another service exported."""

import asyncio
import hashlib
import time
from dataclasses import replace
from secrets import token_hex
from typing import Any

import orjson
from pydantic import BaseModel, Field

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.bodies import NDJSON, read_body
from calibrant_server.service.http.problems import (
    AnswerLate,
    ImportUnfinished,
    ModelConflict,
    ModelDeleted,
    Problem,
)
from calibrant_server.service.ingest.service import IngestService, digest_of
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.model_documents import ExportLine, redeclared
from calibrant_server.service.reads.operations import Access, Admin, Created, Operations
from calibrant_server.workers.ingest.entries import RESTORE, EntryError, IngestBatch
from calibrant_server.workers.ingest.inbox_errors import ModelGoneError
from calibrant_server.workers.lifecycle.transfer import END, FORMATS, MODEL
from calibrant_server.workers.lifecycle.transfer_maps import check_map
from calibrant_server.workers.store import batch_records as records
from calibrant_server.workers.store.batch_records import BatchReceipt
from calibrant_server.workers.store.frozen_maps import PromotedMap
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import RevisionConflict

router = Operations("models")

A_CHUNK = 2 * 1024 * 1024
WAIT_S = 60.0


class ImportResponse(BaseModel):
    """What was imported."""

    model: str
    lines: int
    panes: int
    records: int
    webhook_secrets: list[dict[str, str]] | None = Field(
        None,
        description="New secrets of webhooks whose secrets the export left out: `url` and `secret`. Returned only here.",
    )


@router.operation(
    "POST /v1/models/{model}/import",
    Admin,
    {
        200: success(ImportResponse, "The same import was done before", Location="The model."),
        201: success(ImportResponse, "The model is imported", Location="The model."),
    },
    409,
    takes_=takes("The lines of an export", {NDJSON: ExportLine}),
)
async def import_model(access: Access) -> Created:
    """Import a model that another service exported. The id must be unused. A request that was cut off can be sent again."""
    settings, ingest, model = access.settings, access.ingest, access.model
    roomy = dict.fromkeys(("max_body_bytes", "max_decoded_bytes"), settings.max_import_bytes)
    with ingest.admission.hold() as hold:
        body = await read_body(access.request, settings.model_copy(update=roomy), hold, (NDJSON,))
        lines = body.data.strip().split(b"\n")
        config = config_in(lines, access.caller.tenant, model)
        is_new = await _restored(ingest, config, lines)
        new_secrets = await _new_secrets(ingest, config, lines[0]) if is_new else []
    results: dict[str, Any] = {
        "model": model,
        "lines": len(lines),
        "panes": sum(line.startswith(b'{"type":"pane"') for line in lines),
        "records": sum(map(_is_record, lines)),
    }
    if new_secrets:
        results["webhook_secrets"] = new_secrets
    return Created(results, f"/v1/models/{model}", is_new)


async def _new_secrets(
    ingest: IngestService, config: ModelConfig, first: bytes
) -> list[dict[str, str]]:
    """Return the webhooks whose secrets the export left out; each got a new one, which is returned once."""
    exported = orjson.loads(first)["configuration"].get("alarm", {}).get("webhooks") or []
    missing = {each["url"] for each in exported if not each.get("secret") and "format" not in each}
    made = await ingest.registry.found(config.tenant, config.model)
    receivers = [] if made is None else made.alarm.get("webhooks", [])
    return [each for each in receivers if each["url"] in missing]


async def _restored(ingest: IngestService, config: ModelConfig, lines: list[bytes]) -> bool:
    """Import a model, or continue an interrupted import; return False if it was complete before."""
    current, registry = current_map_in(lines, config), ingest.registry
    content = content_of(lines)
    known = await registry.found(config.tenant, config.model)
    if known is not None and known.imported == content:
        return False
    if known is None:
        await ingest.check_new_model(config.tenant)
        # A new name: entries of a deleted import that are still in the stream do not belong to this one.
        known = replace(config, importing=f"{content}.{token_hex(4)}")
        try:
            known = await registry.restore(known)
        except RevisionConflict as error:
            raise ImportUnfinished() from error
    elif known.importing is None:
        raise ModelConflict(
            f"The model {config.model!r} exists already. Delete it first, or use another id."
        )
    elif known.importing.partition(".")[0] != content:
        raise ImportUnfinished("Another import of this model has begun. Delete the model first.")
    try:
        await _restore(ingest, known, [line for line in lines[1:-1] if not _is_current_map(line)])
    except CalibrationInputError:
        # What cannot be read now cannot be read by a repeat either.
        await registry.delete(known)
        raise
    try:
        await registry.finish_import(
            known, replace(known, importing=None, imported=content), current
        )
    except RevisionConflict as error:
        if error.current is None or error.current.imported != content:
            raise ModelDeleted() from error
    return True


def content_of(lines: list[bytes]) -> str:
    """Return what an import is known by."""
    named = hashlib.blake2b(digest_size=12)
    for line in lines:
        named.update(line + b"\n")
    return named.hexdigest()


def config_in(lines: list[bytes], tenant: str, model: str) -> ModelConfig:
    """Return the configuration in an export; reject an incomplete export.

    It keeps generation and revision, which are part of the name of the state.
    """
    first, last = _line(lines[0], 1), _line(lines[-1], len(lines))
    if first.get("type") != MODEL or first.get("format") not in FORMATS:
        raise _rejected(
            1,
            "export_format",
            f"Received another first line; expected the model, in format {FORMATS[0]} to {FORMATS[-1]}.",
        )
    if last.get("type") != END or last.get("lines") != len(lines) - 1:
        raise _rejected(
            len(lines),
            "export_incomplete",
            "Received an export without its end, or with missing lines. Export the model again.",
        )
    if last.get("consistent") is not True:
        raise _rejected(
            len(lines),
            "export_inconsistent",
            "Received an export during which the model changed. Export it again.",
        )
    try:
        config = ModelConfig.from_json(orjson.dumps(first["configuration"]))
        config = replace(config, tenant=tenant, model=model, importing=None, imported=None)
        config = redeclared(config)
    except Problem as problem:
        raise _rejected(
            1, "export_format", f"Received a configuration that is not valid: {problem.detail}"
        ) from problem
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _rejected(1, "export_format", f"the configuration cannot be read: {error}") from error
    return config


async def _restore(ingest: IngestService, config: ModelConfig, lines: list[bytes]) -> None:
    """Enqueue the lines piece by piece, each after the previous one is merged. Pieces that were enqueued before are skipped."""
    for number, payload in enumerate(_chunks(lines)):
        batch_id = f"import-{config.importing}-{number}"
        n_records = sum(map(_is_record, payload.split(b"\n")))
        delivery = IngestBatch.of(
            config, batch_id, RESTORE, payload, digest_of(payload), n_records, retains=n_records > 0
        )
        await ingest.enqueue(delivery)
        receipt = await _merged(ingest, config, batch_id)
        if not receipt.is_final:
            raise AnswerLate()
        if receipt.status != records.MERGED:
            raise CalibrationInputError([Violation(**each) for each in receipt.errors])


async def _merged(ingest: IngestService, config: ModelConfig, batch_id: str) -> BatchReceipt:
    """Wait for a piece. The removal of an earlier model of this generation takes its record away, but not the piece."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            left_s = max(deadline - time.monotonic(), 0.0)
            return await ingest.inbox.wait_merged(config.key, batch_id, left_s, was_there=True)
        except ModelGoneError:
            known = await ingest.registry.found(config.tenant, config.model)
            if known is None or known.importing != config.importing or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


def _chunks(lines: list[bytes]) -> list[bytes]:
    chunks: list[list[bytes]] = [[]]
    size = 0
    for line in lines:
        if chunks[-1] and size + len(line) > A_CHUNK:
            chunks.append([])
            size = 0
        chunks[-1].append(line)
        size += len(line)
    return [b"\n".join(chunk) for chunk in chunks if chunk]


def _is_record(line: bytes) -> bool:
    return line.startswith(b'{"type":"record"')


def _is_current_map(line: bytes) -> bool:
    return line.startswith(b'{"type":"current_map"')


def current_map_in(lines: list[bytes], config: ModelConfig) -> bytes:
    """Return the model's current calibration map, as stored; empty for none."""
    raw = b""
    for number, line in enumerate(lines, 1):
        if not _is_current_map(line):
            continue
        try:
            raw = str(_line(line, number)["text"]).encode()
            current = PromotedMap.from_bytes(raw)
            check_map(orjson.loads(current.body), config)
            fits = current.generation == config.generation
        except (AttributeError, EntryError, KeyError, ValueError):
            fits = False
        if not fits:
            raise _rejected(
                number,
                "export_format",
                "Received a current map that does not belong to the model. Export the model again.",
            )
    return raw


def _line(text: bytes, number: int) -> dict[str, Any]:
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _rejected(number, "json", str(error)) from error
    if not isinstance(line, dict):
        raise _rejected(
            number, "object", "Received another type; expected a JSON object in each line."
        )
    return line


def _rejected(number: int, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError.at(f"/{number}", rule, detail)
