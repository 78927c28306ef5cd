"""`calibrant score --manifest`: from the manifest to the contents of a report."""

from __future__ import annotations

from pathlib import Path

from calibrant.cli.evaluation import EvaluationSettings
from calibrant.cli.imaging.case_store import CaseStore
from calibrant.cli.imaging.evaluation import (
    ImageResults,
    ImageSettings,
    default_folder,
    evaluate_cases,
    image_keys,
)
from calibrant.cli.imaging.manifest import read_manifest
from calibrant.cli.imaging.report import contents_of, peak_bytes
from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat
from calibrant.cli.progress import Progress
from calibrant.cli.terminal import output
from calibrant.client import Pseudonyms
from calibrant.quality_report import ReportContents


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
