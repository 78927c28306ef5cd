"""Archived reports of a model: pages with their results. A report is written once and never changes.

Retention does not remove them; deleting the model does. Pages and results are stored compressed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import zstandard

from calibrant_server.workers.store.frozen_maps import add_version
from calibrant_server.workers.store.key_names import Keys
from calibrant_server.workers.store.model_config import ModelConfig

MAX_REPORTS = 500
_LEVEL = 9


class NoSuchReport(LookupError):
    """The model has no report with this number, or not in this form."""


class ReportSummary(TypedDict):
    """What lists show of a report."""

    model: str
    created_at: str
    created_by: str
    note: str | None
    window: dict[str, str]
    slice: str | None
    parameters: dict[str, Any]
    state_version: str
    sha256: str
    results_sha256: str


class StoredReport(ReportSummary):
    """The same, with the number of the report and the bytes that it takes."""

    report: int
    stored_bytes: int


@dataclass(frozen=True)
class NewReport:
    """A report to archive.

    Attributes
    ----------
    identity : the same for a repeat of the same report
    summary : JSON, as lists show it
    page : HTML
    results : JSON, by name
    """

    identity: str
    summary: ReportSummary
    page: bytes
    results: bytes


class ReportArchive:
    """The archives of a store, for the event loop."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys

    async def add(self, config: ModelConfig, report: NewReport, max_bytes: int) -> tuple[int, bool]:
        """Archive a report; return its number and whether it is new.

        Raises
        ------
        NoSuchModel, NoRoom
        """
        packed = zstandard.ZstdCompressor(level=_LEVEL)
        page, results = packed.compress(report.page), packed.compress(report.results)
        n_bytes = len(page) + len(results)
        summary = json.dumps({**report.summary, "stored_bytes": n_bytes}).encode()
        keys, fields = (
            [self._keys.of(config).models, self._name(config)],
            {"s": summary, "h": page, "r": results},
        )
        bounds = MAX_REPORTS, max_bytes, n_bytes + len(summary)
        return await add_version(self._client, config, keys, report.identity, bounds, fields)

    async def count(self, config: ModelConfig) -> int:
        """Return the number of archived reports."""
        return int(await self._client.hget(self._name(config), "n") or 0)

    async def listed(self, config: ModelConfig) -> list[StoredReport]:
        """Return the summaries of all reports, oldest first."""
        n = await self.count(config)
        if not n:
            return []
        found = await self._client.hmget(self._name(config), [f"s{i}" for i in range(1, n + 1)])
        return [_stored(i, text) for i, text in enumerate(found, 1) if text]

    async def summary(self, config: ModelConfig, number: int) -> StoredReport:
        """Return what lists show of a report.

        Raises
        ------
        NoSuchReport
        """
        return _stored(number, await self._field(config, f"s{number}", number))

    async def page(self, config: ModelConfig, number: int) -> bytes:
        """Return a report as HTML; errors as `summary`."""
        return _unpacked(await self._field(config, f"h{number}", number))

    async def results(self, config: ModelConfig, number: int) -> bytes:
        """Return the results of a report as JSON; errors as `summary`."""
        return _unpacked(await self._field(config, f"r{number}", number))

    async def _field(self, config: ModelConfig, field: str, number: int) -> bytes:
        found: bytes | None = await self._client.hget(self._name(config), field)
        if found is None:
            raise NoSuchReport(number)
        return found

    def _name(self, config: ModelConfig) -> str:
        return self._keys.of(config).report_archive(config.key, config.generation)


def _stored(number: int, summary: bytes) -> StoredReport:
    return cast(StoredReport, {"report": number, **json.loads(summary)})


def _unpacked(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)
