"""Trace of the project files that a request runs through, over all threads of one process.

Threads inherit the profile function when they start, so the service and its engine are started inside `traced`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from calibrant_server.service.app import create_app
from calibrant_server.service.settings import Settings

ROOT = Path(__file__).parents[1]
FOLDERS = ("calibrant", "service", "workers")
ACCUMULATORS = "calibrant/accumulators/"
CONNECTION = "workers/store/connection.py"


@dataclass(frozen=True)
class Call:
    """One call of a project function."""

    thread: str
    file: str
    function: str
    in_accumulator: bool


@dataclass
class Trace:
    """Calls of project functions while `recording`, in order, over all threads."""

    calls: list[Call] = field(default_factory=list)
    recording: bool = False
    _files: dict[str, str] = field(default_factory=dict)
    _depth: threading.local = field(default_factory=threading.local)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; the function for `sys.setprofile`."""
        if not self.recording or event not in ("call", "return"):
            return
        name = frame.f_code.co_filename
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = _project_file(name)
        if not file:
            return
        depth: int = getattr(self._depth, "in_accumulators", 0)
        if event == "call":
            thread = threading.current_thread().name
            self.calls.append(Call(thread, file, frame.f_code.co_qualname, depth > 0))
        if file.startswith(ACCUMULATORS):
            self._depth.in_accumulators = max(0, depth + (1 if event == "call" else -1))

    def files(self, *threads: str, without: str | None = None) -> list[str]:
        """Files with an executed function, by first call, of the threads whose name begins with one of `threads`.

        `without="accumulators"` leaves out the accumulators and everything that they call.
        """
        calls = [call for call in self.calls if call.thread.startswith(threads)]
        if without == "accumulators":
            calls = [
                call
                for call in calls
                if not call.in_accumulator and not call.file.startswith(ACCUMULATORS)
            ]
        return list(dict.fromkeys(call.file for call in calls))

    async def until(self, thread: str, function: str, seconds: float = 30.0) -> None:
        """Wait until the latest call of a thread is this function, or a wait for the store inside it."""
        deadline = time.monotonic() + seconds
        while True:
            own = (call for call in reversed(self.calls) if call.thread.startswith(thread))
            last = next((call for call in own if call.file != CONNECTION), None)
            if last is not None and last.function == function:
                return
            assert time.monotonic() < deadline, f"{thread} did not reach {function}"
            await asyncio.sleep(0.01)


def _project_file(name: str) -> str:
    path = Path(name)
    if not path.is_absolute() or not path.exists():
        return ""
    path = path.resolve()
    if not path.is_relative_to(ROOT):
        return ""
    inside = path.relative_to(ROOT)
    return inside.as_posix() if inside.parts[0] in FOLDERS else ""


@contextmanager
def traced() -> Iterator[Trace]:
    """A trace that this thread, and every thread started inside, writes to."""
    trace = Trace()
    before = sys.getprofile()
    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


@asynccontextmanager
async def one_process(data_dir: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Run service, engine and embedded store in this process, as `make run` does, without the socket."""
    app = create_app(Settings(data_dir=data_dir))
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client
