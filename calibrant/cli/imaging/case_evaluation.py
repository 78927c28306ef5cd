"""Evaluation of a manifest: case after case in bounded memory, the patient as unit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.evaluation import EvaluationSettings, keys_of
from calibrant.cli.imaging.case_store import CaseStore, ReducedCase
from calibrant.cli.imaging.checked_case import CaseArrays, read_case
from calibrant.cli.imaging.manifest import ManifestCase
from calibrant.cli.imaging.masks import MaskLabels
from calibrant.cli.imaging.reader_rows import Readers, rows_of_reader
from calibrant.cli.imaging.reduction import WeightedRows, reduced
from calibrant.cli.imaging.region import automatic_region
from calibrant.cli.imaging.voxel_pane import SPEC, VoxelPane
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.scored_data import digest
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.input.arrays import read_arrays
from calibrant.metrics import Metric, chosen

# Metrics that weighted rows give exactly as the voxels do, with their intervals (tests compare them).
METRICS = ("accuracy", "ece", "brier", "nll", "dice", "ml1_ece", "net_benefit")
DEFAULT_METRICS = ("ece", "brier", "nll", "accuracy", "dice", "ml1_ece")


@dataclass(frozen=True)
class ImageSettings:
    """How a manifest is evaluated.

    Attributes
    ----------
    class_index : class that is scored against the rest, None for one probability per voxel
    is_automatic : whether regions are computed where the manifest names none
    ignored : values of masks that are no label
    """

    class_index: int | None = None
    is_automatic: bool = False
    ignored: tuple[int, ...] = ()

    @property
    def labels(self) -> MaskLabels:
        """What the values of masks mean."""
        return MaskLabels(self.class_index, self.ignored)


@dataclass
class ImageResults:
    """Panes of all cases that could be read.

    Attributes
    ----------
    region, complete : of the regions of interest, and of the complete volumes
    scanners : of the regions, by scanner
    readers : of the regions, reader by reader
    cases : with the number of voxels in the region and in the volume, and of readers
    results : of each case, as `case_result` returns them
    query : bins and rating policy of the results of single cases
    digests : by case, the SHA-256 of each file by its column
    failed : cases that could not be read, with the reason
    n_positives : positive ratings in the complete volumes
    n_adjusted : voxels whose probability was set to 0 or 1
    n_compared, differing : voxels in the regions with two or more ratings, and the sum of their shares of differing pairs
    n_resumed : cases that an earlier run had finished
    seconds : of this run
    """

    region: VoxelPane = field(default_factory=VoxelPane)
    complete: VoxelPane = field(default_factory=VoxelPane)
    scanners: dict[str, VoxelPane] = field(default_factory=dict)
    readers: Readers = field(default_factory=Readers)
    cases: list[tuple[ManifestCase, int, int, int]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    query: PaneQuery = field(default_factory=PaneQuery)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    failed: list[tuple[ManifestCase, str]] = field(default_factory=list)
    n_positives: int = 0
    n_adjusted: int = 0
    n_compared: int = 0
    differing: float = 0.0
    n_resumed: int = 0
    seconds: float = 0.0


def image_keys(settings: EvaluationSettings) -> list[str]:
    """Return the requested metrics.

    Raises
    ------
    CalibrationInputError
        A metric that weighted rows do not give exactly.
    """
    keys = keys_of(settings, DEFAULT_METRICS)
    for key in keys:
        if key.partition("(")[0] not in METRICS:
            detail = f"Received {key!r}; images are scored by {', '.join(METRICS)}."
            raise CalibrationInputError.at("/metrics", "not_for_images", detail)
    return keys


def evaluate_cases(
    cases: list[ManifestCase],
    settings: ImageSettings,
    store: CaseStore,
    step: Callable[[str], None],
    query: PaneQuery,
) -> ImageResults:
    """Evaluate the cases patient by patient; `step` is called with the name of each case."""
    began, found = time.monotonic(), ImageResults(query=query)
    for patient in dict.fromkeys(case.patient for case in cases):
        read: list[tuple[ManifestCase, ReducedCase]] = []
        for case in cases:
            if case.patient != patient:
                continue
            step(case.name)
            try:
                read.append((case, _one(case, settings, store, found)))
            except InputFileError as error:
                found.failed.append((case, str(error)))
        _add(found, read)
    found.seconds = time.monotonic() - began
    return found


def _one(
    case: ManifestCase, settings: ImageSettings, store: CaseStore, found: ImageResults
) -> ReducedCase:
    """Return a case, from the store if an earlier run has finished it."""
    for path in case.files:
        if not path.is_file():
            raise InputFileError(
                path,
                "The file does not exist. Correct its path. If the reader was absent, leave the cell empty.",
                "missing",
            )
    stored = store.read(case)
    if stored is not None:
        found.n_resumed += 1
        return stored
    result = reduce_case(case, settings)
    store.write(case, result)
    return result


def reduce_case(case: ManifestCase, settings: ImageSettings) -> ReducedCase:
    """Read, check and reduce a case.

    Raises
    ------
    InputFileError
        A file does not fit, or the case has no region of interest.
    """
    if case.roi is None and not settings.is_automatic:
        detail = (
            "The case has no region of interest. Name its file in the column roi, or pass --roi auto. In complete volumes, easy "
            "background makes every error small."
        )
        raise InputFileError(case.probability, detail, "no_roi")
    arrays = read_case(case, settings.labels)
    region = _automatic(case, arrays) if arrays.roi is None else arrays.roi
    rows = reduced(arrays.probability, arrays.positives, arrays.rated, region)
    if not len(rows.weight):
        detail = "No reader gave a label in the region of interest: every value there is ignored."
        raise InputFileError(case.probability, detail, "empty_roi")
    by_reader = None
    if arrays.pattern is not None:
        base = 3**arrays.n_readers
        by_reader = reduced(arrays.probability, arrays.pattern, arrays.rated, region, base)
    return ReducedCase(
        rows,
        reduced(arrays.probability, arrays.positives, arrays.rated),
        by_reader,
        arrays.n_readers,
        arrays.n_adjusted,
        {name: digest(path) for name, path in case.columns.items()},
        None if arrays.spacing_mm is None else float(np.prod(arrays.spacing_mm)),
    )


def _automatic(case: ManifestCase, arrays: CaseArrays) -> NDArray[np.bool_]:
    """Return the region around the voxels that readers marked or that have a probability, void ones left out."""
    if arrays.spacing_mm is None:
        detail = "The file does not state the distance of voxels, which --roi auto needs. Name a region in the column roi."
        raise InputFileError(case.probability, detail, "no_spacing")
    scores = arrays.probability
    if not arrays.rated.all():
        scores = np.where(arrays.rated > 0, scores, 0.0)
    region = automatic_region(scores, arrays.positives, arrays.spacing_mm)
    if not region.any():
        detail = "No reader marked a voxel and no probability is above 0.01: the region is empty."
        raise InputFileError(case.probability, detail, "empty_roi")
    return region


def _add(found: ImageResults, read: list[tuple[ManifestCase, ReducedCase]]) -> None:
    """Add the cases of one patient, who is complete in one fill."""
    if not read:
        return
    _fill(found.region, [(case, each.region) for case, each in read])
    _fill(found.complete, [(case, each.complete) for case, each in read])
    for scanner in {case.scanner for case, _ in read} - {None}:
        part = [(case, each.region) for case, each in read if case.scanner == scanner]
        _fill(found.scanners.setdefault(str(scanner), VoxelPane()), part)
    _add_readers(found, read)
    for case, each in read:
        found.digests[case.name] = each.digests
        found.results.append(case_result(case, each, found.query))
        sizes = each.region.n_voxels, each.complete.n_voxels
        found.cases.append((case, *sizes, each.n_readers))
        found.n_positives += each.complete.n_of(each.complete.positives)
        found.n_adjusted += each.n_adjusted
        _compare(found, each.region)


def _add_readers(found: ImageResults, read: list[tuple[ManifestCase, ReducedCase]]) -> None:
    """Add what each reader gave the voxels of the cases of one patient."""
    parts: dict[str, list[tuple[ManifestCase, WeightedRows]]] = {}
    for case, each in read:
        if each.readers is None:
            found.readers.n_left_out += 1
            continue
        found.readers.add(case.patient, list(case.readers), each.readers)
        for place, name in enumerate(case.readers):
            rows = rows_of_reader(each.readers, place)
            if len(rows.weight):
                parts.setdefault(name, []).append((case, rows))
    for name, of_patient in parts.items():
        _fill(found.readers.panes.setdefault(name, VoxelPane()), of_patient)


def case_result(case: ManifestCase, reduced: ReducedCase, query: PaneQuery) -> Result:
    """Return the results of one case.

    Returns
    -------
    dict with `case`, `patient`, `scanner`, `n_readers`; of the region `n_voxels`, `dice`, `ece`; of the complete volume `n_voxels_complete`,
    `volume_readers` and `volume_predicted` in voxels, and these in ml (None if no file states the distance of voxels). The volume of
    readers is their mean; predicted are voxels with a probability of at least 0.5.
    """
    rows = reduced.complete
    marked = float(rows.weight @ (rows.positives / rows.rated))
    predicted = rows.n_of(rows.probability >= 0.5)
    ml = None if reduced.voxel_mm3 is None else reduced.voxel_mm3 / 1000.0
    return {
        "case": case.name,
        "patient": case.patient,
        "scanner": case.scanner,
        "n_readers": reduced.n_readers,
        "n_voxels": reduced.region.n_voxels,
        **_values(case, reduced.region, query),
        "n_voxels_complete": rows.n_voxels,
        "volume_readers": marked,
        "volume_predicted": predicted,
        "volume_readers_ml": None if ml is None else marked * ml,
        "volume_predicted_ml": None if ml is None else predicted * ml,
    }


def _values(case: ManifestCase, rows: WeightedRows, query: PaneQuery) -> dict[str, float | None]:
    target = VoxelPane()
    _fill(target, [(case, rows)])
    view = View(target.pane, query)
    return {metric.slug: _value(metric, view) for metric in chosen(["dice", "ece"])}


def _value(metric: Metric, view: View) -> float | None:
    try:
        return metric.value(view)
    except NoResultError:
        return None


def _compare(found: ImageResults, rows: WeightedRows) -> None:
    """Add the pairs of ratings of one voxel, and those that differ."""
    several = rows.rated > 1
    weight, n, y = rows.weight[several], rows.rated[several], rows.positives[several]
    found.n_compared += rows.n_of(several)
    found.differing += float(weight @ (y * (n - y) / (n * (n - 1) / 2)))


def _fill(target: VoxelPane, parts: Sequence[tuple[ManifestCase, WeightedRows]]) -> None:
    names = [np.full(len(rows.weight), case.name, object) for case, rows in parts]
    patient = np.full(sum(map(len, names)), parts[0][0].patient, object)
    batch = read_arrays(
        np.concatenate([rows.probability for _, rows in parts]),
        label_counts=np.concatenate([rows.label_counts for _, rows in parts]),
        weights=np.concatenate([rows.weight for _, rows in parts]),
        units=patient,
        cases=np.concatenate(names),
        spec=SPEC,
    )
    target.pane.fill_batch(batch)
    for _, rows in parts:
        target.count(rows)


def default_folder(manifest: Path) -> Path:
    """Return the folder of finished cases of a manifest."""
    return manifest.with_name(f"{manifest.stem}.cases")
