"""The HTTP client: a client for a service, a model for one of its models.

`asynchronous.py` is the source; `make names` writes `synchronous.py` from it, without `async` and `await`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from calibrant.client import operations, processes
from calibrant.client.current_map import CurrentMap
from calibrant.client.errors import ServiceError
from calibrant.client.extra import address, imported, in_thread
from calibrant.client.numbered_panes import KeyedPanes, groups
from calibrant.client.operations import Operation
from calibrant.client.outbox import LogStatistics
from calibrant.client.pseudonyms import Pseudonyms, coded_columns
from calibrant.client.results import Alarm, Maps, Receipt
from calibrant.client.row_log import LogOptions, RowLog, model_of
from calibrant.core.pane import Pane
from calibrant.results import CalibrationMap, Report, Temperature
from calibrant.results.base import Result

if TYPE_CHECKING:
    from calibrant.client.transport import Transport

T = TypeVar("T")


class Method(Protocol):
    """Method of a result that the library declares: `roc(scope="positive")`, `stability()`, ..."""

    async def __call__(self, **query: Any) -> Result:
        """Return the result of a window."""


class AsyncClient:
    """A connection to the service.

    What `Client` and `Model` return when it is done, `AsyncClient` and `AsyncModel` return as coroutines of one event loop. Only
    `log` of a model is none: it never waits.

    Parameters
    ----------
    url : address of the service, such as "https://calibrant.example.org"
    key : key of your tenant, None for a service without keys
    timeout : seconds after which a request without a response is given up or sent again. The `wait` of a batch is added.
    pseudonyms : replaces ids, units and cases before they are sent; None to send them as they are. A pane that is sent is not
        changed: replace its names before it is filled.

    Raises
    ------
    ImportError
        The extra `client` is not installed.
    ValueError
        `url` has no scheme.
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
        self._models: dict[str, AsyncModel] = {}
        self.after_fork()
        processes.watch(self)

    def model(self, name: str, **options: Any) -> AsyncModel:
        """Return a model; the same object for the same name.

        Parameters
        ----------
        name : of the model
        options : of `log`, given with the first call for a model: `reduce`, `max_bytes`, `linger`, `retry_for`,
            `exit_timeout`, as in `LogOptions`
        """
        return model_of(self._models, name, options, lambda given: AsyncModel(self, name, given))

    async def close(self, timeout: float | None = 10.0) -> bool:
        """Send the rows that wait, for at most `timeout` seconds; return whether all were sent."""
        done = [await each.close(timeout) for each in self._models.values()]
        await self._transport.close()
        return all(done)

    def connect(self) -> Transport:
        """Return connections with the address and key of this client, for a thread."""
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

    def after_fork(self) -> None:
        """Use connections of its own in a child process."""
        self._transport = imported("transport").AsyncTransport(self._address)

    def at_exit(self) -> None:
        """Do nothing: the logs of the models send what waits."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._address.url!r})"


class AsyncModel:
    """A model of the service. Made by `model` of a client.

    Parameters of a window are those of the API: `window="P7D"` or `from_` and `to`, `slice="site:A"`, `bins`, `binning`,
    `edges`, `raters`, `scope`, `ci`, ... A time may be a datetime with a zone, a list takes the place of commas.
    """

    def __init__(self, client: AsyncClient, name: str, options: LogOptions) -> None:
        self.name, self.options, self._client = name, options, client
        self._log = RowLog(name, options, client.connect, client.pseudonyms)
        self._maps: list[CurrentMap] = []

    async def metrics(self, metrics: str | Iterable[str] | None = None, **query: Any) -> Report:
        """Return metrics of a window: slugs, as a list or separated by commas. Default: 12 metrics.

        Of a multi-label model without `slice`, a `MultilabelReport`: means over labels, with the report of each label.
        """
        return await self._client.run(operations.metrics(self.name, metrics, query))

    async def temperature(self, **query: Any) -> Temperature:
        """Return the temperature that fits a window."""
        return await self._client.run(operations.temperature(self.name, query))

    def __getattr__(self, name: str) -> Method:
        """Return the method of a result that the library declares: `roc(scope="positive")`, `stability()`, ..."""
        read = operations.declared(name)

        async def method(**query: Any) -> Result:
            return await self._client.run(operations.result(self.name, read, query))

        return method

    async def by_label(self, name: str, **query: Any) -> dict[str, Any]:
        """Return a result of each label of a multi-label model, by its name: `by_label("temperature")`.

        Parameters
        ----------
        name : of a method that returns a result, such as "temperature", "calibration_map" or "reliability"
        query : as of that method, without `slice`
        """
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
        found = await in_thread(CurrentMap, self.name, self._client.connect, refresh)
        self._maps.append(found)
        return found

    def log(
        self,
        probabilities: Any = None,
        labels: Any = None,
        *,
        logits: Any = None,
        label_counts: Any = None,
        label_shares: Any = None,
        n_ratings: Any = None,
        ids: Any = None,
        units: Any = None,
        cases: Any = None,
        event_times: Any = None,
        slices: Mapping[str, Any] | None = None,
        weights: Any = None,
    ) -> int:
        """Send predictions in the background. Never waits, and raises nothing because of the data.

        Parameters
        ----------
        probabilities : (n, n_classes), or (n,), the probability of class 1 of two
        labels : a class per row, or a list with one class per rater; None for a row without label, which then needs an id
        logits, label_counts, label_shares with n_ratings, ids, units, cases, weights : (n, ...), as in `calibrant.evaluate`
        event_times : (n,), datetimes with a zone, datetime64 (UTC) or RFC 3339 texts. Default: the time of this call.
        slices : key to (n,) texts

        Returns
        -------
        Number of rows that found room. `log_statistics` has the outcome of every row.
        """
        return self._log.log(
            {
                "probabilities": probabilities, "labels": labels, "logits": logits, "label_counts": label_counts,
                "ids": ids, "units": units, "cases": cases, "event_times": event_times, "slices": slices,
                "weights": weights, "label_shares": label_shares, "n_ratings": n_ratings,
            }
        )  # fmt: skip

    @property
    def log_statistics(self) -> LogStatistics:
        """Outcome of every row that was given to `log`."""
        return self._log.statistics

    async def flush(self, timeout: float | None = None) -> bool:
        """Wait until every logged row is sent or given up; return False if `timeout` seconds did not suffice."""
        return await in_thread(self._log.flush, timeout)

    async def send(
        self, *, batch_id: str | None = None, partial: bool = False, wait: float = 0, **columns: Any
    ) -> Receipt:
        """Send predictions now, and return the receipt.

        Parameters
        ----------
        batch_id : id under which the batch counts once. Default: a new one, the same for all repeats of this call.
        partial : accept the valid rows; otherwise one invalid row rejects the batch
        wait : seconds to wait until the batch is merged
        columns : as in `log`; rows without event time get the service's. Also `ignore_label`, `normalize`, `time_unit`,
            `model_version` and `task`, each of the complete batch. Of a multi-label model (task="multilabel" with the first batch,
            if it is not declared), `probabilities` or `logits` and `labels` are (n, n_labels), with labels of 0 and 1, None or NaN
            where there is none
        """
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
        """Send a filled pane now, and return the receipt. No label can join it later.

        Parameters
        ----------
        pane : of the model's task, classes and grid
        event_time : with a zone; the pane counts in the time slice around it. Default: now
        slice : value per slice key, of all its predictions
        batch_id, wait : as in `send`; a repeat under the same batch id must have the same event time
        """
        return await self._client.run(
            operations.pane(self.name, pane, event_time, slice, batch_id, wait)
        )

    async def watermark(self, source: str) -> int | None:
        """Return the number after the last accepted message of a source, None before its first batch."""
        return await self._client.run(operations.watermark(self.name, source))

    async def send_panes(self, panes: KeyedPanes, *, source: str, wait: float = 0) -> list[Receipt]:
        """Send the panes of a table now, each once: a repeated call with the same source sends what is missing.

        Panes are numbered in the order of their keys. The service stores, per source, the number after the last pane
        that it accepted (a watermark, which does not expire).

        Parameters
        ----------
        panes : result of `fill_by` with times, and with `combine_slices` if it has slices; or pairs of `Key` and pane
            (a `Pane`, or its `to_bytes()`), which a repeated call must send in the same order
        source : name of one state of the table, such as `predictions@v12`: 1 to 128 characters of A-Za-z0-9._:@-
        wait : seconds to wait until each request's panes are merged

        Returns
        -------
        list of Receipt, one per request
        """
        receipts = []
        for group in groups(panes):
            try:
                receipt = await self._client.run(group.request(self.name, source, wait))
            except ServiceError as error:
                receipt = await self._client.run(group.rest(error).request(self.name, source, wait))
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
        """Send labels of predictions by id, and return the receipt.

        Parameters
        ----------
        ids : ids of the predictions, sent before or later
        labels : a class per id, or a list with one class per rater; None withdraws a named rater's rating. Of a multi-label model
            (n, n_labels) of 0 and 1; what is None or NaN is left out
        raters : names, in the shape of `labels`: a later rating of a named rater replaces the earlier one
        revision : integers in the shape of `labels`: the higher one wins, whichever came first
        batch_id, wait : as in `send`
        """
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
        return await in_thread(self._log.close, timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} of {self._client!r})"
