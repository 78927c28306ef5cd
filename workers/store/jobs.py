"""Bulk jobs of a model: which numbered tasks of each are accepted. They finish in any order, and each counts once.

A task is one batch. `scripts/append_group.lua` checks and sets its bit in the step that appends the batch. So the check has
no limit of time while the job is stored, and a service that is killed neither loses nor repeats a task. A job closes when
its last task is accepted, or by request. The store drops it `RETENTION_S` later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant_server.workers.store.commit import FIRST_ID, id_order
from calibrant_server.workers.store.connection import AsyncScript, scripts
from calibrant_server.workers.store.frozen_maps import NoSuchModel
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.model_config import ModelConfig

MAX_TASKS = 1_000_000  # of one job: 125 kB
MAX_OPEN, MAX_JOBS, MAX_TASKS_OF_MODEL = 100, 1000, 10_000_000
RETENTION_S = 30 * 86_400
_MADE, _KNOWN, _OTHER, _TOO_MANY_OPEN, _TOO_MANY = 1, 2, 3, 4, 5

StoreRetries = Callable[..., Awaitable[Any]]
TaskRange = tuple[int, int]


class NoSuchJob(LookupError):
    """The model has no job of this name, or it was dropped."""


class OtherJob(RuntimeError):
    """The model has a job of this name with another number of tasks."""

    def __init__(self, tasks: int):
        super().__init__(f"the job has {tasks} tasks")
        self.tasks = tasks


class JobsFull(RuntimeError):
    """The model has the maximum of open jobs, or of stored jobs or their tasks."""

    def __init__(self, is_open: bool):
        super().__init__("the model has the maximum of jobs")
        self.is_open = is_open


@dataclass(frozen=True)
class Job:
    """State of a bulk job.

    Attributes
    ----------
    tasks : their number
    accepted : number of tasks whose batch was accepted
    in_queue : whether some of these batches wait to be merged
    closed_ms, expires_ms : None while the job is open
    """

    name: str
    tasks: int
    accepted: int
    in_queue: bool
    created_ms: int
    closed_ms: int | None = None
    expires_ms: int | None = None

    @classmethod
    def read(cls, name: str, found: dict[bytes, bytes], consumed_id: bytes | None) -> Job:
        """Read a job's hash, given the last entry that was consumed."""
        last = found.get(b"last", FIRST_ID.encode()).decode()
        consumed = (consumed_id or FIRST_ID.encode()).decode()
        return cls(
            name,
            int(found[b"tasks"]),
            int(found[b"accepted"]),
            id_order(last) > id_order(consumed),
            int(found[b"created"]),
            *(int(found[field]) if field in found else None for field in (b"closed", b"expires")),
        )


class Jobs:
    """The bulk jobs of a store, for the event loop."""

    def __init__(self, client: Any, keys: Keys, store_retries: StoreRetries):
        self._client, self._keys, self._retried = client, keys, store_retries
        self._put = AsyncScript(client, scripts()["put_job"])
        self._close = AsyncScript(client, scripts()["close_job"])

    async def put(self, config: ModelConfig, name: str, tasks: int) -> bool:
        """Make a job, unless there is one of this name with as many tasks; return whether it is new.

        Raises
        ------
        NoSuchModel, OtherJob, JobsFull, StoreUnavailableError
        """
        keys, of = self._keys.of(config), (config.key, config.generation)
        names = [keys.models, keys.jobs(*of), keys.job(*of, name), keys.marks(*of)]
        args = [*of, name, tasks, MAX_OPEN, MAX_JOBS, MAX_TASKS_OF_MODEL]
        kind, *reply = await self._retried(lambda: self._put(names, args), writes=True)
        if kind == _OTHER:
            raise OtherJob(int(reply[0]))
        if kind in (_TOO_MANY_OPEN, _TOO_MANY):
            raise JobsFull(is_open=kind == _TOO_MANY_OPEN)
        if kind not in (_MADE, _KNOWN):
            raise NoSuchModel(config.key)
        return bool(kind == _MADE)

    async def close(self, config: ModelConfig, name: str) -> None:
        """Close a job, if it is open.

        Raises
        ------
        NoSuchJob, StoreUnavailableError
        """
        keys, of = self._keys.of(config), (config.key, config.generation)
        names = [keys.jobs(*of), keys.job(*of, name), keys.job_tasks(*of, name), keys.marks(*of)]
        names.append(keys.models)
        args = [name, int(RETENTION_S * 1000), config.key]
        (kind,) = await self._retried(lambda: self._close(names, args), writes=True)
        if not kind:
            raise NoSuchJob(name)

    async def get(self, config: ModelConfig, name: str) -> tuple[Job, bytes]:
        """Return a job and its bitmap, of one moment.

        Raises
        ------
        NoSuchJob, StoreUnavailableError
        """
        keys, of = self._keys.of(config), (config.key, config.generation)

        async def once() -> list[Any]:
            async with self._client.pipeline(transaction=True) as pipe:
                pipe.hgetall(keys.job(*of, name))
                pipe.get(keys.job_tasks(*of, name))
                pipe.hget(keys.cursor, "id")
                return list(await pipe.execute())

        found, bits, consumed_id = await self._retried(once)
        if not found:
            raise NoSuchJob(name)
        return Job.read(name, found, consumed_id), bits or b""

    async def listed(self, config: ModelConfig) -> list[Job]:
        """Return all jobs of a model, by name."""
        keys, of = self._keys.of(config), (config.key, config.generation)

        async def once() -> list[Job]:
            names = sorted(map(job_of_member, await self._client.zrange(keys.jobs(*of), 0, -1)))
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.hget(keys.cursor, "id")
                for name in names:
                    pipe.hgetall(keys.job(*of, name))
                consumed_id, *found = await pipe.execute()
            jobs = zip(names, found, strict=True)
            # A job that has expired stays in the index until the next one is made.
            return [Job.read(name, fields, consumed_id) for name, fields in jobs if fields]

        found: list[Job] = await self._retried(once)
        return found


def member_of(name: str, tasks: int) -> str:
    """Return the member of a job in its model's index."""
    return f"{tasks}:{name}"


def job_of_member(member: bytes) -> str:
    """Return the name in a member of the index."""
    return member.decode().partition(":")[2]


def n_tasks(bits: bytes) -> int:
    """Return the number of tasks that a bitmap has.

    Examples
    --------
    >>> n_tasks(b"\\xa0")
    2
    """
    return int(np.unpackbits(np.frombuffer(bits, np.uint8)).sum())


def missing_ranges(
    bits: bytes, tasks: int, first: int = 0, limit: int = 1000
) -> tuple[list[TaskRange], int | None]:
    """Return the ranges [from, to) of missing tasks from `first`, at most `limit`, and where the rest begins, if any.

    Examples
    --------
    >>> missing_ranges(b"\\xa0", 10)
    ([(1, 2), (3, 10)], None)
    >>> missing_ranges(b"\\xa0", 10, limit=1)
    ([(1, 2)], 3)
    """
    is_set = np.zeros(tasks + 1, bool)
    is_set[tasks] = True
    found = np.unpackbits(np.frombuffer(bits, np.uint8))[:tasks]
    is_set[: len(found)] = found
    is_set[:first] = True
    edges = np.flatnonzero(np.diff(is_set, prepend=True)).tolist()
    ranges = list(zip(edges[::2], edges[1::2], strict=True))
    following = ranges[limit][0] if len(ranges) > limit else None
    return ranges[:limit], following
