"""Reduced cases on disk, so that an interrupted run continues with the next case."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from calibrant.cli.imaging.manifest import ManifestCase
from calibrant.cli.imaging.reduction import WeightedRows

# Raised when the checks or the reduction change: cases of earlier formats are read again.
FORMAT = 5
PARTS = ("region", "complete", "readers")


@dataclass(frozen=True)
class ReducedCase:
    """A case that was read.

    Attributes
    ----------
    region, complete : rows of the region of interest, and of the complete volume
    readers : rows of the region whose `positives` are `CaseArrays.pattern`; None beyond as many readers as are compared
    n_readers, n_adjusted : as in `CaseArrays`
    digests : SHA-256 of each file by its column
    voxel_mm3 : volume of a voxel, None if no file states the distance of voxels
    """

    region: WeightedRows
    complete: WeightedRows
    readers: WeightedRows | None
    n_readers: int
    n_adjusted: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    voxel_mm3: float | None = None


class CaseStore:
    """A folder with one file per finished case.

    Parameters
    ----------
    folder : made if absent
    settings : what the reduction depends on besides the files
    """

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self._folder, self._settings = folder, settings
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, case: ManifestCase) -> ReducedCase | None:
        """Return a finished case; None if there is none, or its files or the settings have changed."""
        try:
            with np.load(self._path(case), allow_pickle=False) as found:
                if str(found["key"]) != self._key(case):
                    return None
                parts = [
                    WeightedRows(*(found[f"{name}_{i}"] for i in range(4)))
                    for name in PARTS
                    if f"{name}_0" in found
                ]
                readers = parts[2] if len(parts) == len(PARTS) else None
                digests: dict[str, str] = json.loads(str(found["digests"]))
                n_readers, n_adjusted = int(found["n_readers"]), int(found["n_adjusted"])
                volume: float | None = json.loads(str(found["voxel_mm3"]))
                return ReducedCase(
                    parts[0], parts[1], readers, n_readers, n_adjusted, digests, volume
                )
        except (FileNotFoundError, BadZipFile, KeyError, ValueError, EOFError):
            return None

    def write(self, case: ManifestCase, reduced: ReducedCase) -> None:
        """Write a finished case; a write that is interrupted leaves nothing under its name."""
        path = self._path(case)
        draft = path.with_suffix(".part")
        columns: dict[str, Any] = {
            f"{name}_{i}": column
            for name, rows in zip(
                PARTS, (reduced.region, reduced.complete, reduced.readers), strict=True
            )
            if rows is not None
            for i, column in enumerate((rows.probability, rows.positives, rows.rated, rows.weight))
        }
        with draft.open("wb") as file:
            np.savez_compressed(
                file,
                key=np.array(self._key(case)),
                n_readers=np.array(reduced.n_readers),
                n_adjusted=np.array(reduced.n_adjusted),
                voxel_mm3=np.array(json.dumps(reduced.voxel_mm3)),
                digests=np.array(json.dumps(reduced.digests)),
                **columns,
            )
        os.replace(draft, path)

    def _path(self, case: ManifestCase) -> Path:
        """Return the file of a case. Names differ in case only on some systems, so it has a digest."""
        return self._folder / f"case-{hashlib.sha256(case.name.encode()).hexdigest()[:24]}.npz"

    def _key(self, case: ManifestCase) -> str:
        """Return what the result depends on: the files by path, size and time of change, and the settings."""
        states = []
        for path in case.files:
            found = path.stat()
            states.append([str(path.resolve()), found.st_size, found.st_mtime_ns])
        readers = [[name, str(path.resolve())] for name, path in case.readers.items()]
        text = json.dumps([FORMAT, case.name, readers, states, self._settings])
        return hashlib.sha256(text.encode()).hexdigest()
