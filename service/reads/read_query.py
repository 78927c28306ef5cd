"""A query with its subject: the panes that it covers now, and the name of the response."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.reads.compare import Comparison
from calibrant_server.service.reads.queries import WindowQuery, invalid_query, unanswerable
from calibrant_server.service.version import CODE_VERSION
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store import windows
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.watermarks import Watermarks
from calibrant_server.workers.store.windows import Window


@dataclass(frozen=True)
class ReadQuery:
    """A query with its subject.

    Attributes
    ----------
    query : as the worker computes it
    view : which window, by its durations and its clock
    slice : replaces the view's
    comparison : what the result is compared with
    shown : the part of the result that a figure shows, for its ETag
    """

    query: Query
    config: ModelConfig
    view: WindowQuery
    slice: str | None = None
    comparison: Comparison | None = None
    shown: tuple[str | None, ...] = ()

    @property
    def slice_name(self) -> str:
        """Return the slice, on its clock; empty for all rows."""
        plain = self.slice if self.slice is not None else self.view.slice or ""
        return sealed_slice(plain) if self.view.on_clock == "sealed" else plain


def etag_of(read_query: ReadQuery, media_type: str, window: Window, state_version: str) -> str:
    """Return the strong ETag of a response: a digest of everything that it depends on."""
    config, comparison = read_query.config, read_query.comparison
    parts = [
        *(
            CODE_VERSION,
            media_type,
            read_query.query.kind,
            read_query.query.to_dict(),
            read_query.shown,
            state_version,
        ),
        *(config.key, config.generation, config.revision, window.to_dict(), read_query.slice_name),
        None if comparison is None else str(comparison.against),
    ]
    made_of = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    return f'"{hashlib.blake2b(made_of, digest_size=16).hexdigest()}"'


def resolved(read_query: ReadQuery, marks: Watermarks) -> Window:
    """Return the panes that the query covers: on the clock of sealed cohorts, now is the end of the last one."""
    view, to = read_query.view, read_query.view.to
    if view.on_clock == "sealed":
        if read_query.config.label_horizon_s is None and not marks.sealed_to:
            detail = "Received clock=sealed; the model declares no label_horizon, so no cohort is sealed. Declare one, or use clock=event."
            raise unanswerable("/clock", "no_label_horizon", detail)
        if to is None and marks.sealed_to:
            to = datetime.fromtimestamp(marks.sealed_to, UTC)
    try:
        window = windows.resolve(
            from_=view.from_,
            to=to,
            window=view.window,
            pane_s=read_query.config.pane_s,
            now=datetime.now(UTC),
        )
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    return marks.widened(window)
