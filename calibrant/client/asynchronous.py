"""The asynchronous client: the requests of the synchronous one, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

from calibrant.client import operations
from calibrant.client.current_map import CurrentMap
from calibrant.client.errors import ServiceError
from calibrant.client.extra import imported
from calibrant.client.numbered_panes import KeyedPanes, groups
from calibrant.client.operations import Operation
from calibrant.client.outbox import LogStatistics
from calibrant.client.pseudonyms import Pseudonyms, coded_columns
from calibrant.client.results import Alarm, Maps, Receipt
from calibrant.client.row_log import LogOptions, RowLog
from calibrant.client.synchronous import Model, address, once
from calibrant.core.pane import Pane
from calibrant.results import CalibrationMap, Report, Temperature
from calibrant.results.base import Result

if TYPE_CHECKING:
    from calibrant.client.transport import Transport

T = TypeVar("T")


class AsyncClient:
    """A connection to the service, for coroutines of one event loop.

    Parameters and errors are those of `Client`.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        pseudonyms: Pseudonyms | None = None,
    ) -> None:
        self._address = address(url, key, timeout)
        self.pseudonyms = pseudonyms
        self._transport = imported("transport").AsyncTransport(self._address)
        self._models: dict[str, AsyncModel] = {}

    def model(self, name: str, **options: Any) -> AsyncModel:
        """Return a model; the same object for the same name. The options are those of `Client.model`."""
        found: AsyncModel = once(
            self._models, name, options, lambda given: AsyncModel(self, name, given)
        )
        return found

    async def close(self, timeout: float | None = 10.0) -> bool:
        """Send the rows that wait, for at most `timeout` seconds; return whether all were sent."""
        done = [await each.close(timeout) for each in self._models.values()]
        await self._transport.close()
        return all(done)

    def connect(self) -> Transport:
        """Return connections for a thread."""
        found: Transport = imported("transport").Transport(self._address)
        return found

    async def run(self, operation: Operation[T]) -> T:
        """Send a request, again where that may help, and return the content of its response."""
        found: T = await self._transport.run(operation)
        return found

    async def pages(self, first: Operation[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the pages of a list."""
        found = [await self.run(first)]
        while found[-1]["next"]:
            found.append(await self.run(first.after(found[-1]["next"])))
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._address.url!r})"


class AsyncModel:
    """A model of the service. Made by `AsyncClient.model`; its methods are those of `Model`.

    `log` is no coroutine: it never waits. The threads of `log` and `map` are those of the synchronous client.
    """

    def __init__(self, client: AsyncClient, name: str, options: LogOptions) -> None:
        self.name, self.options, self._client = name, options, client
        self._log = RowLog(name, options, client.connect, client.pseudonyms)
        self._maps: list[CurrentMap] = []

    async def metrics(self, metrics: str | Iterable[str] | None = None, **query: Any) -> Report:
        """Return metrics of a window, as `Model.metrics`."""
        return await self._client.run(operations.metrics(self.name, metrics, query))

    async def temperature(self, **query: Any) -> Temperature:
        """Return the temperature that fits a window."""
        return await self._client.run(operations.temperature(self.name, query))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Result]]:
        """Return the method of a result that the library declares: `roc(scope="positive")`, `stability()`, ..."""
        read = operations.declared(name)
        return lambda **query: self._client.run(operations.result(self.name, read, query))

    async def by_label(self, name: str, **query: Any) -> dict[str, Any]:
        """Return a result of each label of a multi-label model, as `Model.by_label`."""
        read = operations.declared(name)
        return await self._client.run(operations.results_by_label(self.name, read, query))

    async def alarms(self, **query: Any) -> list[Alarm]:
        """Return the alarms of the model, newest first: `state="open"`, `acknowledged=False`."""
        first = operations.alarm_pages(self.name, query)
        return operations.alarms_of(await self._client.pages(first))

    async def maps(self) -> Maps:
        """Return the summaries of the frozen maps."""
        return operations.maps_of(await self._client.pages(operations.map_pages(self.name)))

    async def frozen_map(self, version: int) -> CalibrationMap:
        """Return a frozen map."""
        return await self._client.run(operations.frozen_map(self.name, version))

    async def map(self, refresh: float = 30.0) -> CurrentMap:
        """Return a function that applies the promoted map, and reads it again every `refresh` seconds."""
        found = await asyncio.to_thread(CurrentMap, self.name, self._client.connect, refresh)
        self._maps.append(found)
        return found

    log = Model.log

    @property
    def log_statistics(self) -> LogStatistics:
        """Outcome of every row that was given to `log`."""
        return self._log.statistics

    async def flush(self, timeout: float | None = None) -> bool:
        """Wait until every logged row is sent or given up; return False if `timeout` seconds did not suffice."""
        return await asyncio.to_thread(self._log.flush, timeout)

    async def send(
        self, *, batch_id: str | None = None, partial: bool = False, wait: float = 0, **columns: Any
    ) -> Receipt:
        """Send predictions now, as `Model.send`."""
        coded = coded_columns(self._client.pseudonyms, columns)
        return await self._client.run(
            operations.predictions(self.name, coded, batch_id, partial, wait)
        )

    async def send_pane(
        self,
        pane: Pane,
        *,
        event_time: datetime | None = None,
        slice: Mapping[str, str] | None = None,
        batch_id: str | None = None,
        wait: float = 0,
    ) -> Receipt:
        """Send a filled pane now, as `Model.send_pane`."""
        return await self._client.run(
            operations.pane(self.name, pane, event_time, slice, batch_id, wait)
        )

    async def watermark(self, source: str) -> int | None:
        """Return the number after the last accepted message of a source, as `Model.watermark`."""
        return await self._client.run(operations.watermark(self.name, source))

    async def send_panes(self, panes: KeyedPanes, *, source: str, wait: float = 0) -> list[Receipt]:
        """Send the panes of a table now, each once, as `Model.send_panes`."""
        receipts = []
        for group in groups(panes):
            try:
                receipt = await self._client.run(group.request(self.name, source, wait))
            except ServiceError as error:
                rest = group.rest(error)
                receipt = await self._client.run(rest.request(self.name, source, wait))
            receipts.append(receipt)
        return receipts

    async def label(
        self,
        ids: Any,
        labels: Any,
        *,
        raters: Any = None,
        revision: Any = None,
        batch_id: str | None = None,
        wait: float = 0,
    ) -> Receipt:
        """Send labels of predictions by id, as `Model.label`."""
        coded = coded_columns(self._client.pseudonyms, {"ids": ids, "raters": raters})
        return await self._client.run(
            operations.labels(
                self.name, coded["ids"], labels, coded["raters"], revision, batch_id, wait
            )
        )

    async def close(self, timeout: float | None = 10.0) -> bool:
        """Send the rows that wait, for at most `timeout` seconds; return whether all were sent."""
        for each in self._maps:
            each.close()
        return await asyncio.to_thread(self._log.close, timeout)

    def __repr__(self) -> str:
        return f"AsyncModel({self.name!r} of {self._client!r})"
