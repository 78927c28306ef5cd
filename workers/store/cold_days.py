"""Which slices of the days of a model are in files, and how they come back to the store.

`T:cd:G` has a field for each cold day, with the file of each slice. A commit that changes something of a slice first writes the
complete file of the slice to the store, and takes it off the day, in one step: a slice of a day is in the store or in a file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calibrant.core.packing import PackingError
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.day_file import PANE, SEALED, DayFiles, DayItem, Fields, Items
from calibrant_server.workers.store.file_store import NOT_SET, FilesUnavailable
from calibrant_server.workers.store.key_names import PaneKey, PartitionKeys
from calibrant_server.workers.store.slice_names import is_baseline
from calibrant_server.workers.store.watermarks import day_of

Model = tuple[str, str]


@dataclass(frozen=True)
class ColdDay:
    """A day with slices in files.

    Attributes
    ----------
    folder : of its files
    files : name in the folder, by slice
    changed_ms : when a slice last came back or was added
    """

    folder: str
    files: Mapping[str, str] = field(default_factory=dict)
    changed_ms: int = 0

    @classmethod
    def read(cls, text: bytes | None) -> ColdDay | None:
        """Return the day that a field of the store describes."""
        return None if text is None else cls(**json.loads(text))

    def to_json(self) -> bytes:
        """Return the field of the store."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @property
    def names(self) -> list[str]:
        """Names of all files."""
        return [f"{self.folder}/{name}" for name in self.files.values()]

    def file_of(self, slice_: str) -> str | None:
        """Return the file of a slice; None if the store has the slice."""
        name = self.files.get(slice_)
        return None if name is None else f"{self.folder}/{name}"


def of_files(
    files: DayFiles | None, wanted: Sequence[tuple[ColdDay | None, DayItem]]
) -> list[Fields | PackingError | None]:
    """Return the fields of items that files have; None for those that the store has; damage as a result.

    Raises
    ------
    FilesUnavailable
        The store of files does not respond.
    """
    names = [None if day is None else day.file_of(item.of_slice) for day, item in wanted]
    needed = sorted({name for name in names if name is not None})
    if needed and files is None:
        raise FilesUnavailable(NOT_SET)
    read = {}
    if files is not None and needed:
        read = dict(zip(needed, files.place.at_once(files.read, needed), strict=True))
    return [
        None if name is None else _of_items(read[name], item)
        for name, (_, item) in zip(names, wanted, strict=True)
    ]


def _of_items(found: Items | PackingError, item: DayItem) -> Fields | PackingError | None:
    return found if isinstance(found, PackingError) else found.get(item)


def of_file(files: DayFiles | None, day: ColdDay | None, item: DayItem) -> Fields | None:
    """Return the fields of an item that a file has; None if the store has it; raise PackingError if the file is damaged."""
    [found] = of_files(files, [(day, item)])
    if isinstance(found, PackingError):
        raise found
    return found


class ColdDays:
    """Cold days of the models that one partition's commits change, as the last commit left them."""

    def __init__(self, node: Any, keys: PartitionKeys):
        self._node = node
        self._keys = keys
        self._days: dict[Model, dict[int, ColdDay]] = {}

    def forget(self) -> None:
        """Drop everything: the state of the store is unknown."""
        self._days.clear()

    def put(self, model: Model, fields: Mapping[bytes, bytes]) -> None:
        """Take the cold days of a model as they are stored."""
        found = ((int(name), ColdDay.read(text)) for name, text in fields.items())
        self._days[model] = {day_s: day for day_s, day in found if day is not None}

    def day(self, model: Model, start_s: int) -> ColdDay | None:
        """Return the cold day that a time is in."""
        if model not in self._days:
            self.put(model, self._node.hgetall(self._keys.cold_days(*model)))
        return self._days[model].get(day_of(start_s))

    def fields(self, wanted: Sequence[tuple[Model, DayItem]]) -> list[Fields | PackingError | None]:
        """Return the fields of items that files have, and None for those that the store has."""
        days = [(self.day(model, item.start_s), item) for model, item in wanted]
        return of_files(self._keys.files, days)

    def bring_back(self, commit: Commit, wanted: Iterable[tuple[Model, DayItem]]) -> None:
        """Write the slices that a commit changes to the store, before the changes; their files are given up.

        Afterwards the items are read from the store, which has them once the commit is written.
        """
        slices = {
            (model, day_of(item.start_s), item.of_slice)
            for model, item in wanted
            if not is_baseline(item.slice)
        }
        for model, day_s, slice_ in sorted(slices):
            day = self.day(model, day_s)
            if day is not None:
                self._bring_back(commit, model, day, day_s, slice_)

    def _bring_back(
        self, commit: Commit, model: Model, day: ColdDay, day_s: int, slice_: str
    ) -> None:
        name, now_ms = day.file_of(slice_), int(time.time() * 1000)
        if name is not None and self._keys.files is not None:
            for item, fields in self._stored(model, name).items():
                commit.set_fields(key_of(self._keys, model, item), fields)
            give_up(commit, self._keys, [name], now_ms + int(self._keys.files.keep_s * 1000))
        others = {other: file for other, file in day.files.items() if other != slice_}
        day = self._days[model][day_s] = replace(day, files=others, changed_ms=now_ms)
        commit.set_fields(self._keys.cold_days(*model), {str(day_s): day.to_json()})

    def _stored(self, model: Model, name: str) -> Items:
        """Return the items of a file, without panes that are past the retention meanwhile; raise PackingError."""
        assert self._keys.files is not None
        found = self._keys.files.read(name)
        if isinstance(found, PackingError):
            raise found
        with self._node.pipeline(transaction=False) as pipe:
            for item in found:
                pipe.hexists(self._keys.versions(*model, item.slice), item.start_s)
            exist = pipe.execute()
        return {
            item: fields
            for (item, fields), exists in zip(found.items(), exist, strict=True)
            if fields and (exists or item.kind != PANE)
        }


def key_of(keys: PartitionKeys, model: Model, item: DayItem) -> str:
    """Return the hash of the store that has an item, unless a file has it."""
    if item.kind == PANE:
        return keys.pane(PaneKey(*model, item.slice, item.start_s))
    clock = "sealed" if item.kind == SEALED else "event"
    return keys.sample(*model, f"{clock}|{item.start_s}")


def give_up(commit: Commit, keys: PartitionKeys, names: Iterable[str], at_ms: int) -> None:
    """Note in a commit that files are to be removed from a time on; 0: as soon as possible."""
    spare = dict.fromkeys(names, str(at_ms))
    if spare:
        commit.set_fields(keys.spare_files, spare)
