"""Reads: a question about a window, an ETag before the answer, a wait for news.

The ETag names what the answer is made of (the state's version, the resolved window, the query, the code,
the representation), so that an unchanged answer is 304 without being computed. With `Prefer: wait` and
If-None-Match the answer comes when the state changes, or 304 when the time is over.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import Request, Response

from calibrant.errors import CalibrationInputError
from service.engine import Connection, engine_errors
from service.headers import entity_tags, names, negotiated, preferred_wait
from service.queries import WindowQuery, invalid_query, unanswerable
from service.settings import Settings
from service.version import VERSION
from workers import windows
from workers.questions import CODE_VERSION, Answer, Other
from workers.state.marks import Marks, sealed_slice
from workers.state.registry import ModelConfig
from workers.versions import joined

JSON = "application/json"


@dataclass(frozen=True)
class Ask:
    """A question as the workers take it."""

    kind: str
    config: ModelConfig
    params: dict[str, Any]
    view: WindowQuery
    slice: str | None = None
    against: Other | None = None

    @property
    def slice_name(self) -> str:
        """Return the slice that is asked about, on its clock; empty for all rows."""
        plain = self.slice if self.slice is not None else self.view.slice or ""
        return sealed_slice(plain) if self.view.clock == "sealed" else plain

    def asking(self, params: dict[str, Any]) -> "Ask":
        """Return the question with other parameters."""
        return replace(self, params=params)


Render = Callable[[bytes], Awaitable[bytes]]


class Reading:
    """The door's side of reads."""

    def __init__(self, settings: Settings, connection: Connection) -> None:
        self.settings = settings
        self.inbox = connection.inbox

    async def answer(
        self,
        request: Request,
        ask: Ask,
        media_type: str | None = None,
        render: Render | None = None,
    ) -> Response:
        """Answer `ask` as `media_type`; `render` makes it from the JSON, unless it is JSON."""
        media_type = media_type or negotiated(request, [JSON])
        known = entity_tags(request, "if-none-match")
        wait = preferred_wait(request)
        headers = {"Cache-Control": "no-cache", "Vary": "Accept, Authorization"}
        if wait is not None and known is not None:
            headers["Preference-Applied"] = f"wait={wait}"
        with engine_errors():
            window, etag = await self._awaited(ask, media_type, known, wait)
            if names(known, etag):
                return Response(status_code=304, headers={**headers, "ETag": etag})
            answer = await self.ask(ask, window)
        # The state may have changed since it was looked at: the tag is of what the answer rests on.
        headers["ETag"] = etag_of(ask, media_type, window, answer.state_version)
        body = await render(answer.body) if render else answer.body
        return Response(body, 200, headers, media_type)

    async def answer_each(self, request: Request, whole: Ask, name: str) -> Response:
        """Answer `whole` for every value of the slice `name`, in one document."""
        negotiated(request, [JSON])
        with engine_errors():
            held = await self.inbox.slices(whole.config)
            asks = {each: replace(whole, slice=each) for each in held if each.startswith(f"{name}:")}
            tags = [(await self._etag(ask, JSON))[1] for ask in asks.values()]
            etag = f'"{hashlib.blake2b("".join(tags).encode(), digest_size=16).hexdigest()}"'
            headers = {"Cache-Control": "no-cache", "Vary": "Accept, Authorization", "ETag": etag}
            if names(entity_tags(request, "if-none-match"), etag):
                return Response(status_code=304, headers=headers)
            window = await self.window(whole)
            found = await asyncio.gather(*(self.ask(ask, window) for ask in asks.values()))
        slices = {
            each.partition(":")[2]: orjson.loads(answer.body)
            for each, answer in zip(asks, found, strict=True)
        }
        body = {"model": whole.config.model, "window": window.to_dict(), "by": name, "slices": slices}
        return Response(orjson.dumps(body), 200, headers, JSON)

    async def window(self, ask: Ask) -> windows.Window:
        """Return the panes that the question covers now."""
        return resolved(ask, await self.inbox.marks(ask.config, ask.slice_name))

    async def ask(self, ask: Ask, window: windows.Window) -> Answer:
        """Return the workers' answer."""
        slice_ = ask.slice_name
        try:
            if ask.against is None:
                return await self.inbox.ask(ask.kind, ask.config, ask.params, window, slice_=slice_)
            return await self.inbox.ask(
                ask.kind, ask.config, ask.params, window, slice_=slice_, against=ask.against
            )
        except CalibrationInputError as error:
            raise invalid_query(error) from error

    async def _awaited(
        self, ask: Ask, media_type: str, known: list[str] | None, wait: int | None
    ) -> tuple[windows.Window, str]:
        """Return window and ETag at once, or for a long poll when they are news or time is over."""
        window, etag = await self._etag(ask, media_type)
        deadline = asyncio.get_running_loop().time() + (wait or 0)
        while names(known, etag) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(self.settings.poll_interval_s)
            window, etag = await self._etag(ask, media_type)
        return window, etag

    async def _etag(self, ask: Ask, media_type: str) -> tuple[windows.Window, str]:
        window = await self.window(ask)
        version = await self.inbox.state_version(ask.config, ask.slice_name, window, ask.kind)
        if ask.against is not None:
            other = ask.against
            version = joined(version, await self.inbox.state_version(other.model, other.slice, other.window))
        return window, etag_of(ask, media_type, window, version)


def etag_of(ask: Ask, media_type: str, window: windows.Window, state_version: str) -> str:
    """Return the strong ETag of an answer: what it is made of, in a digest."""
    config = ask.config
    parts = [
        *(VERSION, CODE_VERSION, media_type, ask.kind, ask.params, state_version),
        *(config.key, config.generation, config.revision, window.to_dict(), ask.slice_name),
    ]
    made_of = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    return f'"{hashlib.blake2b(made_of, digest_size=16).hexdigest()}"'


def resolved(ask: Ask, marks: Marks) -> windows.Window:
    """Return the panes that the question covers: on the clock of sealed cohorts, now is where the last one ended."""
    view, to = ask.view, ask.view.to
    if view.clock == "sealed":
        if ask.config.label_horizon_s is None and not marks.sealed_to:
            detail = "no cohort is sealed: the model declares no label_horizon"
            raise unanswerable("/clock", "no_label_horizon", detail)
        if to is None and marks.sealed_to:
            to = datetime.fromtimestamp(marks.sealed_to, UTC)
    try:
        window = windows.resolve(
            from_=view.from_,
            to=to,
            window=view.window,
            last=view.last,
            pane_s=ask.config.pane_s,
            now=datetime.now(UTC),
        )
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    return marks.widened(window)
