"""A query with its subject: the panes that it covers now, the other side of a comparison, and the name of the response."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.engine import Connection, model_of
from calibrant_server.service.reads.queries import WindowQuery, invalid_query, unanswerable
from calibrant_server.service.security.keys import Caller
from calibrant_server.service.version import CODE_VERSION
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.queries.ask import Other
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store import windows
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import baseline_slice, plain_slice, sealed_slice
from calibrant_server.workers.store.watermarks import Watermarks
from calibrant_server.workers.store.windows import LAST_SECOND, Window

EVER = Window(0, LAST_SECOND)


@dataclass(frozen=True)
class Comparison:
    """The other side of a comparison.

    Attributes
    ----------
    config : of the other model, or of the same
    """

    against: Against
    config: ModelConfig

    def slice_for(self, slice_: str) -> str:
        """Return the other side's slice for a query about `slice_`."""
        if self.against.by == "baseline":
            return baseline_slice(self.against.name)
        return sealed_slice(plain_slice(slice_)) if self.against.by == "reference" else slice_

    def window_for(self, window: Window, has_start: bool, pane_s: int) -> Window:
        """Return the other side's window for a query about `window`; for the reference see `other_of`."""
        if self.against.by == "baseline":
            return EVER
        if self.against.by == "model":
            # The same interval in whole panes of the other model, which may be longer.
            return windows.resolve(from_=window.from_at, to=window.to_at, pane_s=self.config.pane_s)
        if not has_start or window.from_s == 0:
            detail = (
                "Received against=window:… for a window without start; expected one, because it compares "
                "with the time before. Send `window` or `from`."
            )
            raise unanswerable("/against", "no_beginning", detail)
        try:
            return windows.resolve(to=window.from_at, window=self.against.name, pane_s=pane_s)
        except CalibrationInputError as error:
            raise invalid_query(error) from error


async def other_of(
    comparison: Comparison, inbox: Inbox, slice_: str, window: Window, has_start: bool
) -> Other:
    """Return the other side's state for a query about `slice_` and `window`."""
    config, slice_of_other = comparison.config, comparison.slice_for(slice_)
    if comparison.against.by == "reference":
        reference = await inbox.alarms.reference(config, plain_slice(slice_))
        if reference is None:
            detail = (
                "Received against=reference, but the alarm of this slice has none: no cohort was sealed, or the "
                "slice is not watched. Compare with an earlier window or a baseline."
            )
            raise unanswerable("/against", "no_reference", detail)
        return Other(comparison.against, config, slice_of_other, reference)
    theirs = comparison.window_for(window, has_start, config.pane_s)
    if comparison.against.by != "baseline":
        theirs = (await inbox.marks(config, slice_of_other)).widened(theirs)
    return Other(comparison.against, config, slice_of_other, theirs)


async def comparison_of(
    against: Against, config: ModelConfig, caller: Caller, connection: Connection
) -> Comparison:
    """Return the other side that a request names; reject a baseline or a model that does not exist."""
    if against.by == "model":
        return Comparison(against, await model_of(connection, caller, against.name))
    if against.by == "baseline":
        known = await connection.inbox.baselines(config)
        if against.name not in known:
            listed = ", ".join(sorted(known)) or "none"
            detail = f"Received baseline {against.name!r}, which does not exist; known: {listed}. Create it first."
            raise unanswerable("/against", "unknown_baseline", detail)
    return Comparison(against, config)


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
