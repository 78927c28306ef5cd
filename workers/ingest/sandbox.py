"""The disposable child: reduces one entry at a time where an entry may kill whoever reads it.

Guilt has to be proved: an entry is a killer only when a child dies of it, and then a fresh child dies of it again. The
process is started anew rather than forked, because the worker has threads and its memory counts against the limit.

Spoken over pipes: 4 bytes of length, then JSON head, a zero byte, and raw bytes.
"""

from __future__ import annotations

import json
import os
import resource
import select
import struct
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import Any, BinaryIO

from calibrant_server.workers.ingest.entries import IngestEntry
from calibrant_server.workers.ingest.label_join import RowOutcomes
from calibrant_server.workers.ingest.payloads import unpack_updates
from calibrant_server.workers.ingest.reduce import (
    Claim,
    Numerics,
    Reduction,
    ground_at,
    reduce_entry,
)
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.transient_errors import NO_VERDICT

_LENGTH = struct.Struct("<I")
_DEATHS_THAT_PROVE = 2
_START_S = 60.0


class EntryKills(RuntimeError):
    """Two children died of an entry; the message says how."""


class ChildUnavailable(OSError):
    """The child cannot be started or used now; this says nothing about an entry."""


class EntryRefused(RuntimeError):
    """The entry raised an ordinary error in the child."""

    def __init__(self, kind: str, detail: str, violations: list[dict[str, str]]):
        super().__init__(detail)
        self.kind = kind
        self.violations = violations


class _ChildDied(Exception):
    pass


class DisposableReducer:
    """Reduces entries in a child process that may die of them."""

    def __init__(self, ground: Numerics, timeout_s: float, memory_bytes: int):
        self._ground = ground
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def reduce(self, entry: IngestEntry, config: ModelConfig) -> tuple[Reduction, int]:
        """Reduce one entry.

        Raises
        ------
        EntryKills
            A child died of it, and a fresh one again.
        EntryRefused
            It raised an ordinary error.
        OSError
            The machine refused a process or a pipe, to the parent or in the child: no verdict.
        """
        request = _frame(_request_head(entry, config), entry.payload)
        deaths: list[str] = []
        while len(deaths) < _DEATHS_THAT_PROVE:
            try:
                return self._read_reply(self._exchange(request), entry, config)
            except _ChildDied as death:
                deaths.append(str(death))
                self.close()
            except NO_VERDICT:
                # What is left in its pipes belongs to no request.
                self.close()
                raise
        raise EntryKills(f"the reducing process died of it twice: {deaths[-1]}")

    def close(self) -> None:
        """End the child, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _child(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            # It ended between two entries: the next one had no part in it.
            self.close()
        if self._process is None:
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                # Threads of a linear algebra library reserve address space that the limit would count.
                "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
            }  # fmt: skip
            self._process = subprocess.Popen(
                [sys.executable, "-m", "calibrant_server.workers.ingest.sandbox", self._ground.path, str(self._memory_bytes)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
            )  # fmt: skip
            self._await_ready(self._process)
        return self._process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Starting is not the entry's fault: it has a time limit of its own, and a failure is not a death."""
        try:
            ready = self._receive(process, time.monotonic() + _START_S) == b"ready"
        except _ChildDied as death:
            raise ChildUnavailable(f"the reducing process did not start: {death}") from death
        if not ready:
            raise ChildUnavailable("the reducing process did not start")

    def _exchange(self, request: bytes) -> bytes:
        process = self._child()
        try:
            assert process.stdin is not None
            process.stdin.write(request)
            process.stdin.flush()
        except BrokenPipeError as error:
            raise _ChildDied(_how_it_ended(process)) from error
        return self._receive(process, time.monotonic() + self._timeout_s)

    def _receive(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        assert process.stdout is not None
        buffer = bytearray()
        wanted = _LENGTH.size
        while len(buffer) < wanted:
            ready, _, _ = select.select(
                [process.stdout], [], [], max(0, deadline - time.monotonic())
            )
            if not ready:
                raise _ChildDied(f"it took longer than {self._timeout_s:g} s")
            chunk = os.read(process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise _ChildDied(_how_it_ended(process))
            buffer += chunk
            if wanted == _LENGTH.size and len(buffer) >= wanted:
                wanted += _LENGTH.unpack_from(buffer)[0]
        return bytes(buffer[_LENGTH.size :])

    def _read_reply(
        self, reply: bytes, entry: IngestEntry, config: ModelConfig
    ) -> tuple[Reduction, int]:
        head, raw = _unframe(reply)
        if head.get("died"):
            raise _ChildDied(head["died"])
        if head.get("transient"):
            raise ChildUnavailable(head["transient"])
        if "error" in head:
            raise EntryRefused(head["error"], head["detail"], head["violations"])
        reduction = Reduction()
        if head["joined"]:
            reduction.outcomes[entry.id] = RowOutcomes()
        at = 0
        for slice_, start_s, length in head["deltas"]:
            key = PaneKey(config.key, config.generation, slice_, start_s)
            reduction.deltas[key] = self._ground.pane.unpack(raw[at : at + length])
            reduction.touched.add(key)
            at += length
        updates = unpack_updates(entry.payload) if head["claims"] else []
        for slice_, start_s, name, position in head["claims"]:
            key = PaneKey(config.key, config.generation, slice_, start_s)
            reduction.claims.append((entry.id, Claim(key, name, updates[position])))
            reduction.touched.add(key)
        return reduction, head["n"]


def _request_head(entry: IngestEntry, config: ModelConfig) -> dict[str, Any]:
    fields = asdict(replace(entry, payload=b"", digest=b""))
    return {"entry": {**fields, "payload": "", "digest": ""}, "config": config.to_json().decode()}


def _frame(head: dict[str, Any], raw: bytes) -> bytes:
    body = json.dumps(head).encode() + b"\0" + raw
    return _LENGTH.pack(len(body)) + body


def _unframe(body: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, raw = body.partition(b"\0")
    return json.loads(head), raw


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "it closed its pipes"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _answer(body: bytes, ground: Numerics) -> bytes:
    head, payload = _unframe(body)
    entry = IngestEntry(**{**head["entry"], "payload": payload, "digest": b""})
    config = ModelConfig.from_json(head["config"])
    reduction = Reduction()
    try:
        n = reduce_entry(entry, config, ground, reduction)
        reduction.close(ground)
        reduction.exchanges(ground)
    except MemoryError:
        return _frame({"died": "it needed more memory than allowed"}, b"")
    except NO_VERDICT as error:
        return _frame({"transient": f"{type(error).__name__}: {error}"[:500]}, b"")
    except Exception as error:
        violations = [asdict(each) for each in getattr(error, "violations", [])]
        return _frame(
            {"error": type(error).__name__, "detail": str(error)[:500], "violations": violations},
            b"",
        )
    packed = {key: delta.pack() for key, delta in reduction.deltas.items()}
    claimed = [claim for _, claim in reduction.claims]
    updates = unpack_updates(payload) if claimed else []
    head = {
        "n": n,
        "joined": bool(reduction.outcomes),
        "deltas": [[key.slice, key.start_s, len(raw)] for key, raw in packed.items()],
        "claims": [
            [c.pane.slice, c.pane.start_s, c.name, updates.index(c.update)] for c in claimed
        ],
    }
    return _frame(head, b"".join(packed.values()))


def _read_frame(stream: BinaryIO) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(head)[0]
    body = stream.read(length)
    return body if len(body) == length else None


def main(ground_path: str, memory_bytes: int) -> None:
    """The child: limits itself, says that it is ready, answers until its input ends."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What an entry prints must not look like an answer.
    os.dup2(2, 1)
    ground = ground_at(ground_path)
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    replies.write(_LENGTH.pack(5) + b"ready")
    replies.flush()
    while (body := _read_frame(requests)) is not None:
        replies.write(_answer(body, ground))
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
