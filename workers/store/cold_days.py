"""Which days of a model are in files, and what of them has come back to the store.

`T:cd:G` has a field for each cold day: its files, and the items that are in the store instead. An item that is in neither list is
in no file: it is read from the store as well. What a commit changes of a cold day it writes completely, and names it here, in one step.
So the files of a day stay as they are until the day is moved again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from calibrant.core.packing import PackingError
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.day_file import (
    EVENT,
    PANE,
    SEALED,
    DayFile,
    DayFiles,
    DayItem,
    Fields,
)
from calibrant_server.workers.store.file_store import NOT_SET, FilesUnavailable
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.slice_names import is_baseline
from calibrant_server.workers.store.watermarks import day_of

Model = tuple[str, str]


@dataclass(frozen=True)
class ColdDay:
    """A day in files.

    Attributes
    ----------
    files : of one move; each item is in one of them at most, or in none
    back : items that are in the store, whatever the files have
    changed_ms : when one of them last changed
    erased : whether a prediction was deleted since, so that the files must go soon
    """

    files: tuple[DayFile, ...]
    back: frozenset[DayItem] = frozenset()
    changed_ms: int = 0
    erased: bool = False

    @classmethod
    def read(cls, text: bytes | None) -> ColdDay | None:
        """Return the day that a field of the store describes."""
        if text is None:
            return None
        stored = json.loads(text)
        return cls(
            tuple(DayFile(**each) for each in stored["files"]),
            frozenset(DayItem(*each) for each in stored["back"]),
            stored["changed_ms"],
            stored["erased"],
        )

    def to_json(self) -> bytes:
        """Return the field of the store."""
        found = {**asdict(self), "back": sorted(self.back)}
        return json.dumps(found, separators=(",", ":")).encode()

    @property
    def is_to_move(self) -> bool:
        """Whether its files are to be written again."""
        return bool(self.back) or self.erased

    def rests_to_s(self, rest_s: float) -> float:
        """Return when its files may be written again: at once where a prediction was deleted."""
        return 0.0 if self.erased else self.changed_ms / 1000 + rest_s

    def may_have(self, item: DayItem) -> bool:
        """Whether the files, and not the store, have what is stored of an item."""
        return item not in self.back and not is_baseline(item.slice)


def pane_item(key: PaneKey) -> DayItem:
    """Return a pane as part of its day."""
    return DayItem(PANE, key.slice, key.start_s)


def sample_item(day_s: int, sealed: bool) -> DayItem:
    """Return a stored sample as part of its day."""
    return DayItem(SEALED if sealed else EVENT, "", day_s)


def of_files(
    files: DayFiles | None, wanted: Sequence[tuple[ColdDay | None, DayItem]]
) -> list[Fields | PackingError | None]:
    """Return the fields of items that files have; None for those that the store has; damage as a result.

    Raises
    ------
    FilesUnavailable
        The store of files does not respond.
    """
    found: list[Fields | PackingError | None] = [None] * len(wanted)
    reads = {
        at: (day.files, item)
        for at, (day, item) in enumerate(wanted)
        if day is not None and day.may_have(item)
    }
    if not reads:
        return found
    if files is None:
        raise FilesUnavailable(NOT_SET)
    results = files.place.readers.map(lambda read: files.read(*read), reads.values())
    for at, result in zip(reads, results, strict=True):
        found[at] = result
    return found


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
        self._changed: set[tuple[Model, int]] = set()

    def forget(self) -> None:
        """Drop everything: the state of the store is unknown."""
        self._days.clear()
        self._changed.clear()

    def put(self, model: Model, fields: Mapping[bytes, bytes]) -> None:
        """Take the cold days of a model as they are stored."""
        found = ((int(name), ColdDay.read(text)) for name, text in fields.items())
        self._days[model] = {day_s: day for day_s, day in found if day is not None}

    def day(self, model: Model, start_s: int) -> ColdDay | None:
        """Return the cold day that a time is in."""
        if model not in self._days:
            self.put(model, self._node.hgetall(self._keys.cold_days(*model)))
        return self._days[model].get(day_of(start_s))

    def fields(self, model: Model, items: Sequence[DayItem]) -> list[Fields | PackingError | None]:
        """Return the fields of items that files have, and None for those that the store has."""
        return of_files(self._keys.files, [(self.day(model, item.start_s), item) for item in items])

    def take_back(self, model: Model, items: Iterable[DayItem], erased: bool = False) -> None:
        """Note items that the next commit writes to the store completely.

        Parameters
        ----------
        erased : whether predictions were deleted from them
        """
        for item in items:
            day = self.day(model, item.start_s)
            if day is None or is_baseline(item.slice):
                continue
            changed_ms = int(time.time() * 1000)
            self._days[model][day_of(item.start_s)] = replace(
                day, back=day.back | {item}, changed_ms=changed_ms, erased=day.erased or erased
            )
            self._changed.add((model, day_of(item.start_s)))

    def note_erased(self, model: Model, start_s: int) -> None:
        """Note that a prediction of a day was deleted: its files must go."""
        day = self.day(model, start_s)
        if day is not None and not day.erased:
            self._days[model][day_of(start_s)] = replace(day, erased=True)
            self._changed.add((model, day_of(start_s)))

    def write(self, commit: Commit) -> None:
        """Write all changes into a commit."""
        for model, day_s in sorted(self._changed):
            text = self._days[model][day_s].to_json()
            commit.set_fields(self._keys.cold_days(*model), {str(day_s): text})
        self._changed.clear()


def give_up(commit: Commit, keys: PartitionKeys, files: Iterable[DayFile], at_ms: int) -> None:
    """Note in a commit that files are to be removed from a time on; 0: as soon as possible."""
    folders = {file.folder: str(at_ms) for file in files}
    if folders:
        commit.set_fields(keys.spare_files, folders)
