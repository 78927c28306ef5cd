"""Requests of the client, each with the reader of its response; the two clients only send them."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from calibrant.client.results import Alarm, Maps, MapVersion, Receipt, report_of
from calibrant.client.rows import OPTIONS, body_of, pieces, plain_value
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.results import CalibrationMap, Report, Temperature
from calibrant.results.base import Result
from calibrant.results.reads import Read, find_reads

T = TypeVar("T")
R = TypeVar("R", bound=Result)
JSON = "application/json"
PAGE_SIZE = 1000
# Parts that the client asks for unless the request names others.
DETAILED = {"metrics": {"include": "details"}, "temperature": {"include": "curve,details"}}


@dataclass(frozen=True)
class Operation(Generic[T]):
    """A request, and the function that reads the JSON of its response.

    Attributes
    ----------
    wait : seconds that the service was asked to wait before it responds
    """

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0

    def after(self, cursor: str) -> Operation[T]:
        """Return the request for the page of a list that a cursor names."""
        return replace(self, query={**self.query, "cursor": cursor})


def model_path(model: str, rest: str = "") -> str:
    """Return the path of a model, or of what is below it."""
    return f"/v1/models/{quote(model, safe='')}{rest}"


def metrics(
    model: str, slugs: str | Iterable[str] | None, query: dict[str, Any]
) -> Operation[Report]:
    """Request metrics of a window."""
    ci = float(query.get("ci") or 0.95)
    query = {**DETAILED["metrics"], **query}
    return _get(
        model_path(model, "/metrics"), lambda found: report_of(found, ci), metrics=slugs, **query
    )


def temperature(model: str, query: dict[str, Any]) -> Operation[Temperature]:
    """Request the fitted temperature, with details and the curve that `plot` draws, unless `include` is given."""
    query = {**DETAILED["temperature"], **query}
    return _get(model_path(model, "/temperature"), _one(Temperature), **query)


def frozen_map(model: str, version: int) -> Operation[CalibrationMap]:
    """Request a frozen map."""
    return _get(model_path(model, f"/maps/{version}"), CalibrationMap.from_dict)


def declared(name: str) -> Read[Any, Any]:
    """Return the read that the library declares under this name.

    Raises
    ------
    AttributeError
        There is none.
    """
    found = None if name.startswith("_") else find_reads().get(name)
    if found is None:
        raise AttributeError(f"a model has no {name!r}; results are {', '.join(find_reads())}")
    return found


def result(model: str, read: Read[Any, Any], query: dict[str, Any]) -> Operation[Result]:
    """Request a result that the library declares."""
    return _get(model_path(model, f"/{read.path}"), _one(read.result), **query)


def _one(result: type[R]) -> Callable[[Mapping[str, Any]], R]:
    """Return the reader of one result; those of all labels of a multi-label model are rejected."""

    def read(found: Mapping[str, Any]) -> R:
        if "labels" in found:
            name = next(iter(found["labels"]))
            detail = f"{found['model']!r} is a multi-label model. Name a label, slice='label:{name}', or use `by_label`."
            raise ValueError(detail)
        return result.from_dict(found)

    return read


def results_by_label(
    model: str, read: Read[Any, Any], query: dict[str, Any]
) -> Operation[dict[str, Any]]:
    """Request a result of each label of a multi-label model, or with `scope="each_class"` of each class."""

    def results(found: Mapping[str, Any]) -> dict[str, Any]:
        parts = found["labels"] if "labels" in found else found["classes"]
        return {name: read.result.from_dict(each) for name, each in parts.items()}

    return _get(
        model_path(model, f"/{read.path}"), results, **{**DETAILED.get(read.name, {}), **query}
    )


def alarm_pages(model: str, query: dict[str, Any]) -> Operation[Mapping[str, Any]]:
    """Request the first page of a model's alarms."""
    return _get("/v1/alarms", dict, model=model, limit=PAGE_SIZE, **query)


def alarms_of(pages: Iterable[Mapping[str, Any]]) -> list[Alarm]:
    """Return the alarms of all pages."""
    return [Alarm.from_dict(each) for page in pages for each in page["alarms"]]


def map_pages(model: str) -> Operation[Mapping[str, Any]]:
    """Request the first page of a model's frozen maps."""
    return _get(model_path(model, "/maps"), dict, limit=PAGE_SIZE)


def maps_of(pages: list[Mapping[str, Any]]) -> Maps:
    """Return the frozen maps of all pages."""
    found = Maps(MapVersion.from_dict(each) for page in pages for each in page["versions"])
    found.current, found.promotions = pages[0]["current"], tuple(pages[0]["promotions"])
    return found


def settings(model: str) -> Operation[dict[str, Any]]:
    """Request the definition of a model."""
    return _get(model_path(model), dict)


def watermark(model: str, source: str) -> Operation[int | None]:
    """Request the number after the last accepted message of a source."""
    path = model_path(model, f"/sources/{quote(source, safe='')}")
    return Operation("GET", path, lambda found: found["watermark"])


def predictions(
    model: str, columns: Mapping[str, Any], batch_id: str | None, partial: bool, wait: float
) -> Operation[Receipt]:
    """Send a batch of predictions, under an id that is made here."""
    found = pieces({name: each for name, each in columns.items() if name not in OPTIONS})
    if not found:
        raise CalibrationInputError.at("/probabilities", "empty", "Received no rows.")
    options = {name: columns[name] for name in OPTIONS if columns.get(name) is not None}
    body = body_of(found, batch_id or new_batch_id(), options)
    return batch(model, "predictions", body, partial, wait)


def labels(
    model: str,
    ids: Any,
    ratings: Any,
    raters: Any,
    revision: Any,
    batch_id: str | None,
    wait: float,
) -> Operation[Receipt]:
    """Send labels of earlier predictions, under an id that is made here."""
    given = {"ids": ids, "labels": ratings, "raters": raters, "revision": revision}
    body = {"batch_id": batch_id or new_batch_id()} | {
        name: listed(column) for name, column in given.items() if column is not None
    }
    return batch(model, "labels", json.dumps(body, allow_nan=False).encode(), False, wait)


def pane(
    model: str,
    filled: Pane,
    event_time: datetime | None,
    slice_: Mapping[str, str] | None,
    batch_id: str | None,
    wait: float,
) -> Operation[Receipt]:
    """Send a filled pane, under an id that is made here."""
    at = event_time or datetime.now(UTC)
    body: dict[str, Any] = {
        "batch_id": batch_id or new_batch_id(),
        "kind": "pane",
        "packed": base64.b64encode(filled.to_bytes()).decode(),
        "event_time": time_text(at),
    }
    if slice_:
        body["slice"] = dict(slice_)
    return batch(model, "histograms", json.dumps(body).encode(), False, wait)


def batch(
    model: str, kind: str, body: bytes, partial: bool = False, wait: float = 0
) -> Operation[Receipt]:
    """Send a batch whose body has its id, so that it may be repeated."""
    headers = {"Content-Type": JSON} | ({"Prefer": f"wait={int(wait)}"} if wait else {})
    query = {"partial": "true"} if partial else {}
    return Operation(
        "POST", model_path(model, f"/{kind}"), Receipt.from_dict, query, body, headers, wait
    )


def new_batch_id() -> str:
    """Return an id that no other batch has."""
    return f"c.{uuid.uuid4().hex}"


def listed(column: Any) -> list[Any]:
    """Return a column as a list of plain values, None where a value is missing."""
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return [plain_value(each) for each in values]


def _get(path: str, read: Callable[[Any], T], **query: Any) -> Operation[T]:
    # `from` is a word of Python.
    named = {name.rstrip("_"): value for name, value in query.items() if value is not None}
    return Operation("GET", path, read, {name: _text(value) for name, value in named.items()})


def _text(value: Any) -> str:
    """Return the value of a query parameter as text.

    >>> _text(["ece", "brier"]), _text(True), _text(timedelta(days=7)), _text(datetime(2026, 11, 20, tzinfo=UTC))
    ('ece,brier', 'true', 'PT604800S', '2026-11-20T00:00:00Z')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"PT{int(value.total_seconds())}S"
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value)


def time_text(at: datetime) -> str:
    """Return a time as RFC 3339 text in UTC; a time without a zone is rejected."""
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone; attach the zone that it is in")
    return at.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
