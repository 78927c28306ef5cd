"""Bulk jobs in the lines of an export: a task that one store has accepted does not count again in the other."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any

from calibrant.input.names import IDENTIFIER
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.lifecycle.export_shapes import Line
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.jobs import MAX_TASKS, job_of_member, member_of, n_tasks
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

JOB = "job"
_LAST_MS = 2**53 - 1


async def job_lines(client: Any, keys: PartitionKeys, config: ModelConfig) -> AsyncIterator[Line]:
    """Yield a line per job: its number of tasks, its times, and the bitmap of its accepted tasks."""
    of = (config.key, config.generation)
    for name in sorted(map(job_of_member, await client.zrange(keys.jobs(*of), 0, -1))):
        async with client.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.job(*of, name))
            pipe.get(keys.job_tasks(*of, name))
            found, bits = await pipe.execute()
        if found:
            times = {
                f"{field}_ms": int(found[field.encode()]) if field.encode() in found else None
                for field in ("created", "closed", "expires")
            }
            packed = b64encode(bits or b"").decode()
            yield {"type": JOB, "job": name, "tasks": int(found[b"tasks"]), **times, "packed": packed}  # fmt: skip


def put_job(
    line: Mapping[str, Any], commit: Commit, keys: PartitionKeys, config: ModelConfig
) -> None:
    """Write the job of a line.

    Raises
    ------
    EntryError
    """
    name, tasks, bits = line["job"], line["tasks"], _bits(line["packed"])
    closed, expires = line["closed_ms"], line["expires_ms"]
    accepted = n_tasks(bits)
    if not IDENTIFIER.fullmatch(name) or not 1 <= tasks <= MAX_TASKS:
        raise EntryError(f"a job line has a name and 1 to {MAX_TASKS} tasks")
    if (closed is None) is not (expires is None) or (closed is None and accepted == tasks):
        raise EntryError("a closed job, and no other, has the times of its end")
    if not all(each is None or 0 <= each <= _LAST_MS for each in (line["created_ms"], closed, expires)):  # fmt: skip
        raise EntryError(f"times of a job line are between 0 and {_LAST_MS}")
    if len(bits) > (tasks + 7) // 8 or accepted != n_tasks(bits[: tasks // 8]) + n_tasks(
        _first_bits(bits[tasks // 8 :], tasks % 8)
    ):
        raise EntryError("a job line has accepted tasks that the job does not have")
    of = (config.key, config.generation)
    fields = {"tasks": tasks, "accepted": accepted, "created": line["created_ms"]}
    commit.set_fields(keys.job(*of, name), fields)
    commit.set_value(keys.job_tasks(*of, name), bits)
    commit.add_scored(keys.jobs(*of), member_of(name, tasks), "+inf" if closed is None else expires)
    if closed is not None:
        commit.set_fields(keys.job(*of, name), {"closed": closed, "expires": expires})
        for key in (keys.job(*of, name), keys.job_tasks(*of, name)):
            commit.expire_at(key, expires)


def _bits(packed: str) -> bytes:
    try:
        return b64decode(packed, validate=True)
    except ValueError as error:
        raise EntryError("packed of a job line is no base64") from error


def _first_bits(byte: bytes, n: int) -> bytes:
    return bytes([byte[0] & (0xFF00 >> n) & 0xFF]) if byte else b""
