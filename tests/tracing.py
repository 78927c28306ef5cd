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
from calibrant_server.service.startup import Plainly

ROOT = Path(__file__).parents[1]
FOLDERS = ("calibrant", "service", "workers")
# Threads that work without a request: their files say nothing about one.
BACKGROUND = ("courier", "heartbeat")


@dataclass
class Trace:
    """Calls of project functions while `recording`: thread, file and function, in order."""

    calls: list[tuple[str, str, str]] = field(default_factory=list)
    recording: bool = False
    _files: dict[str, str] = field(default_factory=dict)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; the function for `sys.setprofile`."""
        if not self.recording or event != "call":
            return
        code = frame.f_code
        file = self._files.get(code.co_filename)
        if file is None:
            file = self._files[code.co_filename] = _project_file(code.co_filename)
        if file:
            self.calls.append((threading.current_thread().name, file, code.co_qualname))

    def files(self, *prefixes: str) -> list[str]:
        """Files with an executed function, by first call; only of threads whose name begins with a prefix."""
        return list(
            dict.fromkeys(
                file
                for thread, file, _ in self.calls
                if not thread.startswith(BACKGROUND)
                and (not prefixes or thread.startswith(prefixes))
            )
        )

    async def until(self, thread: str, function: str, seconds: float = 30.0) -> None:
        """Wait until the latest call of a thread is this function."""
        deadline = time.monotonic() + seconds
        while True:
            last = next((call for call in reversed(self.calls) if call[0].startswith(thread)), None)
            if last is not None and last[2] == function:
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
    transport = httpx.ASGITransport(app=Plainly(app, []))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client
