"""Archived reports as lines of an export: an import verifies page and results against the digests that the archive states.

A report is evidence of the service that wrote it, and an imported page shows what its file contains. Both directions need
the scope `admin`, and the browser runs no script of an archived page.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Any

import zstandard

from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.report_archive import MAX_REPORTS

REPORT = "report"
# Of a page, or of the results of a report, when they are not compressed: above the bounds of a new report.
MAX_PART_BYTES = 64 << 20


async def report_lines(
    client: Any, keys: PartitionKeys, config: ModelConfig
) -> AsyncIterator[dict[str, Any]]:
    """Return the archived reports of a model, oldest first; one is in memory at a time."""
    name = keys.report_archive(config.key, config.generation)
    identities = await _identities(client, name)
    for number in sorted(identities):
        summary, page, results = await client.hmget(name, [f"{part}{number}" for part in "shr"])
        yield {
            "type": REPORT,
            "number": number,
            "identity": identities[number],
            "holds": json.loads(summary),
            "page": _text(page),
            "results": _text(results),
        }


async def _identities(client: Any, name: str) -> dict[int, str]:
    return {
        int(value): field.decode()[1:] async for field, value in client.hscan_iter(name, match="f*")
    }


def put_report(
    line: Mapping[str, Any], keys: PartitionKeys, config: ModelConfig, commit: Commit
) -> None:
    """Write one report into the archive of an imported model.

    Raises
    ------
    EntryError
        The number is out of range, or page or results are not those that the summary describes.
    """
    number, holds = line["number"], line["holds"]
    if not 0 < number <= MAX_REPORTS:
        raise EntryError(f"a report line has a number from 1 to {MAX_REPORTS}")
    fields: dict[str, Any] = {"n": str(number), f"f{line['identity']}": str(number)}
    n_bytes = 0
    for part, letter, digest in (("page", "h", "sha256"), ("results", "r", "results_sha256")):
        if line[part] is None and holds[digest] is None:
            continue
        data = fields[f"{letter}{number}"] = b64decode(line[part] or "", validate=True)
        n_bytes += len(data)
        if sha256(_unpacked(data)).hexdigest() != holds[digest]:
            raise EntryError(f"{part} of a report line differs from the digests of its summary")
    fields[f"s{number}"] = summary = json.dumps({**holds, "stored_bytes": n_bytes}).encode()
    archive = keys.report_archive(config.key, config.generation)
    commit.set_fields(archive, fields)
    commit.add_numbers(archive, {"b": n_bytes + len(summary)})


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _unpacked(data: bytes) -> bytes:
    try:
        declared = zstandard.get_frame_parameters(data).content_size
        if declared > MAX_PART_BYTES:
            raise EntryError(
                f"received a report part of {declared} bytes; at most {MAX_PART_BYTES}"
            )
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_PART_BYTES)
    except zstandard.ZstdError as error:
        raise EntryError(f"a report line cannot be decompressed: {error}") from error
