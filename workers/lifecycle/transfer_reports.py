"""Archived reports as lines of an export: an import verifies page and panes against the digests that the archive states.

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
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.report_archive import MAX_REPORTS

REPORT = "report"
# Of a page, or of all panes of a report, when they are not compressed: above the bounds of a new report.
MAX_PART_BYTES = 64 << 20


async def report_lines(
    client: Any, keys: PartitionKeys, config: ModelConfig
) -> AsyncIterator[dict[str, Any]]:
    """Return the archived reports of a model, oldest first; one is in memory at a time."""
    name = keys.report_archive(config.key, config.generation)
    identities = await _identities(client, name)
    for number in sorted(identities):
        summary, page, panes = await client.hmget(name, [f"{part}{number}" for part in "shp"])
        yield {
            "type": REPORT, "number": number, "identity": identities[number], "holds": json.loads(summary),
            "page": b64encode(page).decode(), "panes": b64encode(panes).decode(),
        }  # fmt: skip


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
        The number is out of range, or page or panes are not those that the summary describes.
    """
    number, holds = line["number"], line["holds"]
    if not 0 < number <= MAX_REPORTS:
        raise EntryError(f"a report line has a number from 1 to {MAX_REPORTS}")
    page, panes = (b64decode(line[part], validate=True) for part in ("page", "panes"))
    _check(holds, _unpacked(page), _unpacked(panes))
    summary = json.dumps({**holds, "stored_bytes": len(page) + len(panes)}).encode()
    archive = keys.report_archive(config.key, config.generation)
    fields = {
        "n": str(number), f"f{line['identity']}": str(number), f"s{number}": summary, f"h{number}": page,
        f"p{number}": panes,
    }  # fmt: skip
    commit.set_fields(archive, fields)
    commit.add_numbers(archive, {"b": len(page) + len(panes) + len(summary)})


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


def _check(holds: Mapping[str, Any], page: bytes, panes: bytes) -> None:
    """Reject parts whose digests differ from those of the summary."""
    try:
        found = json.loads(panes)["panes"]
        stated = [(each["slice"], each["digest"], each["sha256"]) for each in holds["panes"]]
        packed = [
            (each["slice"], each["digest"], sha256(b64decode(each["pane"])).hexdigest())
            for each in found
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise EntryError(f"the panes of a report line cannot be read: {error!r}") from error
    if sha256(page).hexdigest() != holds["sha256"] or stated != packed:
        raise EntryError("page or panes of a report line differ from the digests of its summary")
