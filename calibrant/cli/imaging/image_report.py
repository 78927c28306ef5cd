"""`calibrant score --manifest`: from the manifest to the contents of its report."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from calibrant.cli.evaluation import EvaluationSettings, detectable_by_period
from calibrant.cli.imaging.case_evaluation import (
    ImageResults,
    ImageSettings,
    default_folder,
    evaluate_cases,
    image_keys,
)
from calibrant.cli.imaging.case_store import CaseStore
from calibrant.cli.imaging.manifest import ManifestCase, read_manifest
from calibrant.cli.imaging.reader_rows import MAX_COMPARED
from calibrant.cli.imaging.region import MARGIN_MM, MIN_PROBABILITY
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.scored_data import digest
from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat
from calibrant.cli.progress import Progress
from calibrant.cli.score_report import now, software
from calibrant.cli.terminal import output
from calibrant.client import Pseudonyms
from calibrant.core.documents import Result, Row
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.figures.numbers import MISSING, counted, percent, plain_number
from calibrant.metrics import title_of
from calibrant.quality_report import LeftOut, ReportContents, Subgroup
from calibrant.quality_report.readers import CASES
from calibrant.quality_report.verdicts import interval_or_reason
from calibrant.segmentation.case_report import worst_first


def contents_of(
    found: ImageResults,
    manifest: Path,
    settings: EvaluationSettings,
    images: ImageSettings,
    title: str,
    shown: str,
) -> ReportContents:
    """Return the contents of the report; results are those of the regions of interest. `shown` names the manifest."""
    keys = image_keys(settings)
    metrics = found.region.evaluate(keys, settings)
    readers = Counter(n for _, _, _, n in found.cases)
    compared, odd = found.readers.compared(settings)
    n_received = len(found.cases) + len(found.failed)
    return ReportContents(
        title=title,
        metrics=metrics,
        subject=_subject(found, shown, images),
        classes=("0" if images.class_index is None else "the rest", str(images.class_index or 1)),
        generated_at=now(),
        reliability=found.region.reliability(settings),
        temperature=found.region.temperature(settings),
        tolerance=settings.tolerance,
        detectable=_detectable(found.region.pane, settings),
        n_cases=len(found.cases),
        n_cases_received=n_received,
        left_out=[
            LeftOut(f"case ({case.name})", 1, reason.replace(f"{manifest.parent}{os.sep}", ""))
            for case, reason in found.failed
        ],
        unit="patient",
        row="voxel",
        partly_left_out=_partly_left_out(found),
        subgroups=[
            Subgroup(f"scanner {name}", pane.evaluate(["ece"], settings))
            for name, pane in sorted(found.scanners.items())
        ],
        readers=compared,
        odd_reader=odd,
        readers_missing=TOO_MANY if found.readers.n_left_out else None,
        rater_disagreement=found.differing / found.n_compared if found.n_compared else None,
        extra_tables=[
            _readers(readers),
            _compared(metrics, found.complete.evaluate(keys, settings)),
            _cases(worst_first(found.results)),
        ],
        cases=worst_first(found.results),
        versions=[*software(), (shown, f"SHA-256 {digest(manifest)}")],
        image_digests=found.digests,
    )


def _subject(found: ImageResults, shown: str, images: ImageSettings) -> list[tuple[str, str]]:
    return [
        ("Manifest", shown),
        ("Class", "1" if images.class_index is None else f"{images.class_index} against the rest"),
        ("Readers", _reader_columns(found)),
        ("Region of interest", _region(found)),
        ("Share of the voxels in it", percent(_share_in_region(found))),
        ("Prediction", "one voxel in the region of interest"),
        *_not_as_sent(found, images),
        *_same_scores(found),
    ]


def _share_in_region(found: ImageResults) -> float:
    return found.region.n_voxels / max(sum(n for _, _, n, _ in found.cases), 1)


def _partly_left_out(found: ImageResults) -> list[str]:
    """Return which parts of the cases only some results have."""
    outside = percent(1.0 - _share_in_region(found))
    return [
        *([] if found.failed else ["No case was left out."]),
        f"Voxels outside the region ({outside}) count only in the table of complete volumes.",
        *(
            f"{name} is absent in {counted(n, 'case')}."
            for name, n in _absences(found).items()
            if n
        ),
    ]


def _not_as_sent(found: ImageResults, images: ImageSettings) -> list[tuple[str, str]]:
    """Return which values of masks are no label, and how many probabilities were adjusted."""
    rows = []
    if images.ignored:
        listed = ", ".join(map(str, images.ignored))
        rows.append(
            ("Ignored values of masks", f"{listed}: no label, neither the class nor the rest")
        )
    if found.n_adjusted:
        rows.append(
            (
                "Adjusted",
                f"{found.n_adjusted:,} probabilities outside [0, 1] by rounding were set to 0 or 1",
            )
        )
    return rows


def _region(found: ImageResults) -> str:
    """Return for how many cases the region was drawn beforehand, and how it was made for the others."""
    n = len(found.cases)
    drawn = sum(case.roi is not None for case, *_ in found.cases)
    if drawn == n:
        return "column roi"
    text = (
        f"automatic for {n - drawn} of {n} cases: voxels within {MARGIN_MM:g} mm of those that a reader marked or that have a "
        f"probability above {MIN_PROBABILITY:g}. This region depends on the scores."
    )
    return f"column roi for {drawn} of {n} cases, {text}" if drawn else text


def _same_scores(found: ImageResults) -> list[tuple[str, str]]:
    """Return a warning for cases of different patients whose files of probabilities are equal."""
    by_content: dict[str, list[ManifestCase]] = {}
    for case, *_ in found.cases:
        by_content.setdefault(found.digests[case.name]["probability"], []).append(case)
    return [
        (
            "Warning",
            f"{', '.join(case.name for case in cases)}: the files in the column probability have the same content. Check that none is a copy.",
        )
        for cases in by_content.values()
        if len({case.patient for case in cases}) > 1
    ]


def _reader_columns(found: ImageResults) -> str:
    """Return the columns of the readers, and in how many of the scored cases each was absent."""
    n_cases = len(found.cases)
    return ", ".join(
        f"{name} (absent in {n} of {n_cases} cases)" if n else name
        for name, n in _absences(found).items()
    )


def _absences(found: ImageResults) -> dict[str, int]:
    """Return in how many of the scored cases each reader was absent."""
    absent: Counter[str] = Counter()
    for case, *_ in found.cases:
        absent.update(dict.fromkeys(case.readers, 0))
        absent.update(case.absent)
    return {name: absent[name] for name in sorted(absent, key=lambda name: (len(name), name))}


def _detectable(pane: Pane, settings: EvaluationSettings) -> dict[str, Result]:
    view = View(pane, PaneQuery(bins=settings.bins, raters=settings.raters, ci=settings.ci))
    return detectable_by_period(view, settings)


TOO_MANY = f"Some case has more than {MAX_COMPARED} readers"
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _readers(readers: Counter[int]) -> Table:
    rows = [(str(n), f"{readers[n]:,}") for n in sorted(readers)]
    return "Readers per case", ("Readers", "Cases"), rows


def _compared(region: Result, complete: Result) -> Table:
    """Return the results of the regions with those of the complete volumes."""
    header = ("Metric", "Region", "Interval", "Complete volume", "Interval")
    rows = []
    for key, each in region["metrics"].items():
        other = complete["metrics"][key]
        rows.append((title_of(key), *_cells(each), *_cells(other)))
    return "Region of interest and complete volume", header, rows


def _cells(each: Row) -> tuple[str, str]:
    return plain_number(each["value"]), interval_or_reason(each)


def _cases(results: Sequence[Row]) -> Table:
    header = (
        "Case", "Patient", "Scanner", "Readers", "Dice", "ECE", "Volume of readers (ml)", "Predicted volume (ml)",
        "Voxels in the region", "Voxels",
    )  # fmt: skip
    numbers = ("dice", "ece", "volume_readers_ml", "volume_predicted_ml")
    rows = [
        (
            each["case"], each["patient"], each["scanner"] or MISSING, str(each["n_readers"]),
            *(plain_number(each[name]) for name in numbers),
            f"{each['n_voxels']:,}", f"{each['n_voxels_complete']:,}",
        )
        for each in results
    ]  # fmt: skip
    return CASES, header, rows


def peak_bytes() -> int | None:
    """Return the largest memory of this process so far; None where the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def evaluated(
    manifest: Path,
    settings: EvaluationSettings,
    images: ImageSettings,
    folder: Path | None,
    title: str | None,
    pseudonyms: Pseudonyms | None = None,
    form: TextFormat = DEFAULT_FORMAT,
) -> ReportContents:
    """Evaluate a manifest and print time and peak memory; with `pseudonyms`, no name of a case, patient or file is in the results.

    Raises
    ------
    InputFileError
        The manifest is not allowed, or no case could be read.
    CalibrationInputError
        A setting is not allowed.
    """
    image_keys(settings)
    cases = read_manifest(manifest, pseudonyms, form)
    _reject_ignored_class(manifest, images)
    store = CaseStore(folder or default_folder(manifest), vars(images).copy())
    with Progress() as progress:
        progress.begin("reading cases", len(cases))
        found = evaluate_cases(cases, images, store, progress.step, settings.query())
    shown = manifest
    if pseudonyms is not None:
        shown = pseudonyms.file(manifest)
        found.failed = [
            (case, pseudonyms.without_files(reason, case.files)) for case, reason in found.failed
        ]
    if not found.cases:
        case, reason = found.failed[0]
        raise InputFileError(
            manifest, f"No case could be read. The first, {case.name}: {reason}", "no_case"
        )
    _reject_unmarked(manifest, found, images)
    peak = peak_bytes()
    text = f"{len(found.cases)} of {len(cases)} cases in {found.seconds:.1f} s"
    text += f" ({found.n_resumed} from an earlier run)" if found.n_resumed else ""
    text += "" if peak is None else f", peak memory {peak / 1e9:.2f} GB"
    output().print(text, markup=False, highlight=False)
    return contents_of(
        found, manifest, settings, images, title or f"Calibration of {shown.stem}", shown.name
    )


def _reject_ignored_class(manifest: Path, images: ImageSettings) -> None:
    wanted = 1 if images.class_index is None else images.class_index
    if wanted in images.ignored:
        detail = f"Received --ignore-label {wanted}, which is the class that is scored."
        raise InputFileError(manifest, detail, "ignored_class")


def _reject_unmarked(manifest: Path, found: ImageResults, images: ImageSettings) -> None:
    """Reject a class that no reader marked in any case: it is probably another one than meant."""
    if images.class_index is None or found.n_positives:
        return
    detail = (
        f"No reader marked class {images.class_index} in any of the {len(found.cases)} cases; expected masks with this value. "
        "Correct --class."
    )
    raise InputFileError(manifest, detail, "unmarked_class")
