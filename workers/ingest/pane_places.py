"""Where the panes of a partition's models are: at their start, in the day that they were merged into, or in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from calibrant.core.packing import PackingError
from calibrant_server.workers.ingest.cached_pane import UnreadablePane
from calibrant_server.workers.store.cold_days import ColdDays
from calibrant_server.workers.store.day_file import pane_item
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.key_names import PaneKey, PartitionKeys
from calibrant_server.workers.store.watermarks import Watermarks, latest_day


def model_of(key: PaneKey) -> tuple[str, str]:
    """Return model and generation of a pane."""
    return key.model, key.generation


class PanePlaces:
    """Watermarks and days in files of the models of a partition, as they were last read.

    Attributes
    ----------
    cold : days in files
    """

    def __init__(self, node: Any, keys: PartitionKeys) -> None:
        self._node = node
        self._keys = keys
        self._marks: dict[tuple[str, str], dict[bytes, bytes]] = {}
        self.cold = ColdDays(node, keys)

    def forget(self) -> None:
        """Drop what was read."""
        self._marks.clear()
        self.cold.forget()

    def know(self, panes: Iterable[PaneKey]) -> None:
        """Read the watermarks and cold days of models that are not known."""
        models = sorted(set(map(model_of, panes)) - self._marks.keys())
        if not models:
            return
        with self._node.pipeline(transaction=False) as pipe:
            for model in models:
                pipe.hgetall(self._keys.marks(*model))
                pipe.hgetall(self._keys.cold_days(*model))
            found = pipe.execute()
        for model, marks, days in zip(models, found[::2], found[1::2], strict=True):
            self._marks[model] = marks
            self.cold.put(model, days)

    def of_files(self, keys: Sequence[PaneKey]) -> dict[PaneKey, dict[bytes, bytes]]:
        """Return the fields of the panes that are in files; raise UnreadablePane.

        If the store of files has been away for a while, the entries that need it are parked; the others do not wait.
        """
        cold = [key for key in keys if self.cold.day(model_of(key), key.start_s) is not None]
        if not cold:
            return {}
        with self.readable(cold[0]):
            read = self.cold.fields([(model_of(key), pane_item(key)) for key in cold])
        found = {}
        for key, fields in zip(cold, read, strict=True):
            if isinstance(fields, PackingError):
                raise UnreadablePane(key, fields)
            if fields is not None:
                found[key] = fields
        return found

    @contextmanager
    def readable(self, key: PaneKey) -> Iterator[None]:
        """Raise UnreadablePane where the state of a pane is damaged, or where its file has been out of reach for a while."""
        try:
            yield
        except PackingError as error:
            raise UnreadablePane(self.place(key), error) from error
        except FilesUnavailable as error:
            if self._keys.files is not None and not self._keys.files.place.is_lasting:
                raise
            raise UnreadablePane(self.place(key), error) from error

    def place(self, key: PaneKey) -> PaneKey:
        """Return the pane that stores what is filled into `key`: itself, or the day that it was merged into."""
        return replace(key, start_s=self.marks_of(key).start(key.start_s))

    def marks_of(self, key: PaneKey) -> Watermarks:
        """Return how far the panes of a slice are merged into days."""
        return Watermarks.of(key.slice, self._marks[key.model, key.generation])

    def is_old(self, key: PaneKey) -> bool:
        """Whether a slice of the model has merged this time into a day, or the day is in files: it has no tail any more."""
        if key.start_s < latest_day(self._marks[model_of(key)]):
            return True
        return self.cold.day(model_of(key), key.start_s) is not None
