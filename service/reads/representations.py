"""Responses: models of those that are results of the library; selection of numbers, figures or tables by the client, figures made of the numbers,
and tables in CSV or as an Arrow IPC stream."""

from __future__ import annotations

import base64
import csv
import io
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import orjson
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.concurrency import run_in_threadpool

from calibrant.core.extras import pip_install
from calibrant.figures.images import image
from calibrant.metrics import METRICS
from calibrant.metrics.estimate import Estimate
from calibrant.results.base import Result
from calibrant.results.estimate_values import EstimateValues
from calibrant.results.reads import Read
from calibrant.results.tables import Kind, Table, Values
from calibrant_server.service.http.bodies import ARROW, CSV, reads_arrow
from calibrant_server.service.http.lists import ListPage
from calibrant_server.service.http.problems import NotAcceptable
from calibrant_server.service.reads.service import JSON, Render
from calibrant_server.workers.queries.query import described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[dict[str, Any]], "Figure"]
# One figure is drawn at a time, since matplotlib's font code is shared.
DRAWING = threading.Lock()
IMAGES: dict[str, Any] = {
    "image/svg+xml": {"schema": {"type": "string"}},
    "image/png": {"schema": {"type": "string", "contentMediaType": "image/png"}},
}


def or_drawn(described: dict[str, Any]) -> dict[str, Any]:
    """Describe a response that is also available as an image."""
    return {**described, "content": described["content"] | IMAGES}


def drawn(draw: Draw, media_type: str) -> Render | None:
    """Return the function that makes this media type of the numbers; none for JSON."""
    if media_type == JSON:
        return None

    async def render(body: bytes) -> bytes:
        return await run_in_threadpool(image_of, draw, orjson.loads(body), media_type)

    return render


def image_of(draw: Draw, result: dict[str, Any], media_type: str) -> bytes:
    """Return the figure of a result as SVG or PNG."""
    with DRAWING:
        return image(draw(result), media_type)


Row = Sequence[Any]
TABLES = (CSV, ARROW)
CONTENT: dict[str, Any] = {
    CSV: {"schema": {"type": "string"}},
    ARROW: {"schema": {"type": "string", "contentMediaType": ARROW}},
}


def or_table(described: dict[str, Any]) -> dict[str, Any]:
    """Describe a response that is also available as a table."""
    return {**described, "content": described["content"] | CONTENT}


def written_type(media_type: str) -> str:
    """Return a format that this service can write.

    Raises
    ------
    NotAcceptable
        Arrow without the extra that writes it.
    """
    if media_type == ARROW and not reads_arrow():
        raise NotAcceptable(
            f"Received Accept: {media_type}, which this service cannot write without the extra `ipc`. Accept text/csv, "
            f"or ask the operator to install it: {pip_install('server,ipc')}"
        )
    return media_type


def tabulated(media_type: str, table: Table) -> Render:
    """Return the function that makes a table of a JSON result."""

    def make(body: bytes) -> bytes:
        rows = table.rows(orjson.loads(body))
        return written(media_type, table.columns, (_row(each, table.columns) for each in rows))

    async def render(body: bytes) -> bytes:
        return await run_in_threadpool(make, body)

    return render


def _row(found: Values, columns: Mapping[str, Kind]) -> Row:
    return [_value(found.get(name), kind) for name, kind in columns.items()]


def _value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "time":
        return datetime.fromisoformat(value)
    return float(value) if kind == "number" else value


class TableWriter:
    """Writer of a table: what has been written since the last call is returned."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()

    def write(self, rows: Iterable[Row]) -> bytes:
        """Write rows."""
        raise NotImplementedError

    def close(self) -> bytes:
        """Write the end."""
        return self._drained()

    def _drained(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


def writer(media_type: str, columns: Mapping[str, Kind]) -> TableWriter:
    """Return the writer of a format."""
    if media_type == CSV:
        return _CsvWriter(columns)
    return _ArrowWriter(columns)


def written(media_type: str, columns: Mapping[str, Kind], rows: Iterable[Row]) -> bytes:
    """Return a complete table."""
    table = writer(media_type, columns)
    return table.write(rows) + table.close()


class _CsvWriter(TableWriter):
    """RFC 4180: a line of names, blank cells for no value, bytes in base64."""

    def __init__(self, columns: Mapping[str, Kind]) -> None:
        super().__init__()
        self._text = io.TextIOWrapper(self._sink, "utf-8", newline="", write_through=True)
        self._writer = csv.writer(self._text)
        self._writer.writerow(columns)

    def write(self, rows: Iterable[Row]) -> bytes:
        self._writer.writerows([_cell(value) for value in row] for row in rows)
        return self._drained()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return repr(value) if isinstance(value, float) else value


class _ArrowWriter(TableWriter):
    """An Arrow IPC stream with one record batch per call."""

    def __init__(self, columns: Mapping[str, Kind]) -> None:
        import pyarrow as pa

        super().__init__()
        types = {
            "text": pa.string(),
            "number": pa.float64(),
            "integer": pa.int64(),
            "flag": pa.bool_(),
            "time": pa.timestamp("us", "UTC"),
            "bytes": pa.binary(),
        }
        self._schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def write(self, rows: Iterable[Row]) -> bytes:
        import pyarrow as pa

        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, self._schema, strict=True)]  # fmt: skip
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        return self._drained()

    def close(self) -> bytes:
        self._writer.close()
        return self._drained()


class WindowShown(BaseModel):
    """The window after it was resolved to whole panes: half open, RFC 3339."""

    from_: str = Field(alias="from")
    to: str


_models: dict[str, type[BaseModel]] = {}
HEAD: Mapping[str, Any] = {
    "model": (str, ...),
    "window": (WindowShown, ...),
    "state_version": (str, ...),
}


def response_of(read: Read[Any, Any]) -> type[BaseModel]:
    """Return the model of a response that is a result, with the head of all results."""
    # The parts of a window have a state each.
    head = {**HEAD, "state_version": (str | None, None)} if read.in_parts else HEAD
    if read.paged is not None:
        head = {**head, "next": (str | None, ListPage.model_fields["next"])}
    return _model(f"{read.result.__name__}Response", read.result, head)


def part_of(result: type[Result], name: str | None = None) -> type[BaseModel]:
    """Return the model of a result that is part of a response."""
    return _model(name or result.__name__, result, {})


def _model(name: str, result: type[Any], head: Mapping[str, Any]) -> type[BaseModel]:
    if name in _models:
        return _models[name]
    own = {name: (_shown(kind), field) for name, (kind, field) in described(result).items()}
    config = ConfigDict(extra="allow")
    _models[name] = create_model(
        name,
        __config__=config,
        __doc__=(result.__doc__ or "").partition("\n\n")[0],
        **{**head, **own},
    )
    return _models[name]


def _shown(kind: Any) -> Any:
    """Return a type whose results are models of the document."""
    if kind in (Estimate, EstimateValues):
        return part_of(EstimateValues, "Estimate")
    if kind == dict[str, EstimateValues]:
        return estimates()
    if isinstance(kind, type) and issubclass(kind, Result):
        return part_of(kind)
    inner = tuple(_shown(each) for each in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, inner)
    return get_origin(kind)[inner] if get_origin(kind) in (list, dict) else kind


@cache
def estimates() -> type[BaseModel]:
    """Return the model of estimates by metric, derived from the list of metrics."""
    fields: dict[str, Any] = {
        slug: (part_of(EstimateValues, "Estimate"), _described(metric))
        for slug, metric in sorted(METRICS.items())
    }
    return create_model(
        "Estimates",
        __config__=ConfigDict(extra="allow"),
        __doc__="Estimates by the canonical key of the request: a slug, with its options in brackets; each "
        "states which value is better.",
        **fields,
    )


def _described(metric: Any) -> Any:
    return Field(None, title=metric.title, description=getattr(metric, "direction", None))
