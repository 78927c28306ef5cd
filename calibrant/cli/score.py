"""`calibrant score`: evaluate files of predictions and labels, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from calibrant.cli.evaluation import EvaluationSettings, FileEvaluation, evaluated, n_steps
from calibrant.cli.imaging.case_evaluation import ImageSettings
from calibrant.cli.imaging.image_report import evaluated as evaluated_images
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.roles import ColumnRoles
from calibrant.cli.input_files.scored_data import ScoredData, read_scored
from calibrant.cli.label_matrices import (
    evaluated_labels,
    reject_with_task,
    show_labels,
    write_labels,
)
from calibrant.cli.progress import Progress
from calibrant.cli.score_report import contents_of
from calibrant.cli.score_tables import show
from calibrant.cli.table_options import (
    Decimal,
    Delimiter,
    IgnoreLabel,
    Na,
    Salt,
    ignored_labels,
    pseudonyms_of,
    text_format,
)
from calibrant.cli.terminal import fail, output
from calibrant.client import Pseudonyms
from calibrant.core.errors import CalibrationInputError
from calibrant.core.grid import Edges
from calibrant.core.label_policies import POLICIES
from calibrant.core.own_edges import read_edges
from calibrant.core.query import Bins, PaneQuery
from calibrant.peers import PEERS
from calibrant.quality_report import ReportContents, page

# Exit code of `--strict`: the report was written, and has fewer cases than the manifest.
EXIT_CASES_LEFT_OUT = 3

Scores = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="predictions: .npy, .npz, .csv, .tsv, .parquet, .arrow, .json"
    ),
]
Labels = Annotated[
    Path | None,
    typer.Argument(metavar="LABELS", help="labels, in the same order; default: columns of FILE"),
]
Logits = Annotated[
    bool | None,
    typer.Option(
        "--logits/--probabilities",
        help="what FILE holds. Default: logits if its name or the name of its column says so",
    ),
]
Raters = Annotated[
    str | None,
    typer.Option(help="columns of LABELS with one reader each: names, patterns (reader_*), or all"),
]
Text = str | None


def score(
    file: Scores = None,
    labels: Labels = None,
    *,
    raters: Raters = None,
    compare: Annotated[
        Path | None, typer.Option(help="predictions of another model for the same labels")
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="also write a report: .html, or .json for the numbers"),
    ] = None,
    logits: Logits = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="largest acceptable calibration error, set beforehand"),
    ] = None,
    metrics: Annotated[
        Text,
        typer.Option(
            help="slugs separated by commas: ece,brier,lp_ece(order=3). Default: 12 metrics"
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="how several readers count: pooled, mean, majority or single")
    ] = "pooled",
    bins: Annotated[int, typer.Option(min=1, max=16_384, help="number of bins")] = 15,
    bin_edges: Annotated[
        Text, typer.Option(help="own edges of the bins instead of --bins: 0,0.5,0.9,1")
    ] = None,
    edges: Annotated[
        str, typer.Option(help="which end belongs to a bin: right for (a, b], left for [a, b)")
    ] = "right",
    scope: Annotated[
        Text, typer.Option(help="score: top_label, positive, class:NAME or all")
    ] = None,
    ci: Annotated[float, typer.Option(min=0.5, max=0.999, help="level of the intervals")] = 0.95,
    days: Annotated[
        float | None,
        typer.Option(min=0.01, help="days that the data cover, for what 30 and 90 more would show"),
    ] = None,
    unit: Annotated[
        Text, typer.Option(help="column of what is independent of the rest, such as the patient")
    ] = None,
    case: Annotated[Text, typer.Option(help="column of images or studies")] = None,
    id_: Annotated[
        Text, typer.Option("--id", help="column in both files by which rows are matched")
    ] = None,
    weight: Annotated[Text, typer.Option(help="column of weights")] = None,
    slice_: Annotated[
        Text, typer.Option("--slice", help="column of subgroups, each evaluated too")
    ] = None,
    scores: Annotated[
        Text, typer.Option(help="columns of FILE with the scores: names or patterns (p_*)")
    ] = None,
    label: Annotated[Text, typer.Option(help="column of the labels")] = None,
    classes: Annotated[
        Text, typer.Option(help="names of the classes, in the order of the scores: cat,dog")
    ] = None,
    compat: Annotated[
        Text,
        typer.Option(
            help=f"also compute as other libraries do: all, or names separated by commas: {', '.join(PEERS)}"
        ),
    ] = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(
            min=0.001,
            max=0.999,
            help="decision threshold: from this score on, you act. Several: repeat it",
        ),
    ] = None,
    title: Annotated[Text, typer.Option(help="title of the report")] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="images instead of FILE: case, patient, probability, reader_1, …, scanner, roi"
        ),
    ] = None,
    roi: Annotated[
        Text, typer.Option(help="of images: auto, for cases without a file in the column roi")
    ] = None,
    class_: Annotated[
        int | None,
        typer.Option(
            "--class",
            min=0,
            help="of images: number, as in the masks, of the class that is scored against the rest",
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="of images: folder of finished cases. Default: next to the manifest"),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help=f"of images: end with exit code {EXIT_CASES_LEFT_OUT} if a case was left out",
        ),
    ] = False,
    na: Na = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    ignore_label: IgnoreLabel = None,
    normalize: Annotated[
        bool,
        typer.Option("--normalize", help="divide each row of probabilities by its sum"),
    ] = False,
    long: Annotated[
        bool,
        typer.Option(
            "--long",
            help="LABELS has one rating per line: the item (--id), the label and the rater (--raters)",
        ),
    ] = False,
    label_shares: Annotated[
        Text,
        typer.Option(
            help="columns of shares of the classes, which sum to 1, instead of labels: names or patterns (share_*)"
        ),
    ] = None,
    n_ratings: Annotated[
        Text, typer.Option(help="of shares: column with the number of ratings. Default: not known")
    ] = None,
    task: Annotated[
        Text,
        typer.Option(
            help="multilabel: independent events, one column of scores and one of 0 and 1 (--label 'label_*') each"
        ),
    ] = None,
    salt: Salt = None,
) -> None:
    """Evaluate the calibration of predictions in files. No server is needed.

    calibrant score logits.npy labels.csv -o report.html
    """
    if (file is None) == (manifest is None):
        received = "neither FILE nor" if file is None else "both FILE and"
        fail(
            f"Received {received} --manifest; expected one of them. See calibrant score --help.", 2
        )
    if strict and manifest is None:
        fail("Received --strict without --manifest; only cases of a manifest are left out.", 2)
    if policy not in POLICIES:
        fail(f"Received --policy {policy!r}; expected one of {', '.join(POLICIES)}.", 2)
    if roi not in (None, "auto"):
        fail(f"Received --roi {roi!r}; expected auto. Files of regions go into the column roi.", 2)
    roles = ColumnRoles(
        scores, label, raters, unit, case, id_, weight, slice_, logits,
        None if classes is None else tuple(classes.split(",")), text_format(na, delimiter, decimal),
        ignored_labels(ignore_label), normalize, long, label_shares, n_ratings,
    )  # fmt: skip
    try:
        settings = EvaluationSettings(
            metrics, _bins(bins, bin_edges), policy, scope, ci, tolerance, days, tuple(threshold or ()), compat,
            _edges(edges),
        )  # fmt: skip
        reject_output(output_file)
        reject_with_task(task, output_file, {
            "manifest": manifest, "raters": raters, "compare": compare, "slice": slice_, "compat": compat, "tolerance": tolerance,
            "days": days, "title": title, "long": long, "label-shares": label_shares,
        })  # fmt: skip
        if task is not None and file is not None:
            found = evaluated_labels(file, labels, roles, settings, pseudonyms_of(salt))
            show_labels(found, output())
            write_labels(found, output_file, output())
            return
        if manifest is not None and compat is not None:
            fail("Received --compat with --manifest; other libraries score rows: give FILE.", 2)
        if manifest is not None:
            images = ImageSettings(class_, roi == "auto", roles.ignored)
            contents = evaluated_images(
                manifest, settings, images, work, title, pseudonyms_of(salt), roles.form
            )
        else:
            assert file is not None
            contents = _evaluated(
                file, labels, compare, roles, settings, title, pseudonyms_of(salt)
            )
    except (InputFileError, CalibrationInputError) as error:
        fail(str(error))
    show(contents, output())
    write(contents, output_file)
    if strict and contents.left_out:
        raise typer.Exit(EXIT_CASES_LEFT_OUT)


def _bins(bins: int, bin_edges: str | None) -> Bins:
    if bin_edges is None:
        return bins
    if bins != PaneQuery.bins:
        fail(f"Received both --bins {bins} and --bin-edges; expected one of them.", 2)
    return read_edges(bin_edges, "/bin-edges")


def _edges(edges: str) -> Edges:
    if edges not in ("right", "left"):
        fail(f"Received --edges {edges!r}; expected right or left.", 2)
    return "left" if edges == "left" else "right"


def _evaluated(
    file: Path,
    labels: Path | None,
    compare: Path | None,
    roles: ColumnRoles,
    settings: EvaluationSettings,
    title: str | None,
    pseudonyms: Pseudonyms | None,
) -> ReportContents:
    with Progress() as progress:
        progress.begin(f"reading {file.name}", None)
        data = read_scored(file, labels, roles, pseudonyms)
        other = None
        if compare is not None:
            progress.begin(f"reading {compare.name}", None)
            other = read_scored(compare, labels or file, roles, pseudonyms)
            _reject_other_rows(data, other)
        progress.begin("evaluating", n_steps(settings, data, other is not None))
        of_names = settings.of_classes(data.classes)
        found: FileEvaluation = evaluated(data, of_names, progress.step, other)
    return contents_of(found, title or f"Calibration of {data.files[0][0].stem}", other)


def _reject_other_rows(data: ScoredData, other: ScoredData) -> None:
    mine, theirs = data.batch, other.batch
    if mine.n_classes != theirs.n_classes or mine.task != theirs.task:
        detail = f"Received {theirs.n_classes} classes; expected {mine.n_classes}, as in {data.files[0][0].name}."
        raise InputFileError(other.files[0][0], detail, "n_classes")
    if not np.array_equal(mine.row_total, theirs.row_total):
        detail = "The rows have other labels than those of the first file. Match them: --id."
        raise InputFileError(other.files[0][0], detail, "labels")


def reject_output(path: Path | None) -> None:
    """Reject an output that cannot be written, before anything is computed.

    Raises
    ------
    InputFileError
        Its ending is not .html or .json, or its folder does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".json"):
        raise InputFileError(path, "Expected an ending of .html or .json.", "format")
    if not path.parent.is_dir():
        raise InputFileError(path, "The folder does not exist. Create it.", "missing")


def write(contents: ReportContents, path: Path | None) -> None:
    """Write the report, or the numbers behind it."""
    if path is None:
        return
    if path.suffix.lower() == ".json":
        path.write_text(json.dumps(numbers(contents), indent=1, allow_nan=False) + "\n", "utf-8")
    else:
        path.write_text(page(contents), "utf-8")
    output().print(f"Wrote {path}", markup=False, highlight=False)


def numbers(contents: ReportContents) -> dict[str, object]:
    """Return the contents of a report as plain values."""
    return {
        **contents.metrics,
        "tolerance": contents.tolerance,
        "cases": list(contents.cases),
        "readers": list(contents.readers),
        "odd_reader": contents.odd_reader,
        "rater_disagreement": contents.rater_disagreement,
        "detectable": dict(contents.detectable),
        "reliability": contents.reliability,
        "temperature": contents.temperature,
        "subgroups": {each.name: each.metrics for each in contents.subgroups},
        "comparison": contents.comparison,
        "compat": contents.compat,
        "left_out": [vars(each) for each in contents.left_out],
        "versions": dict(contents.versions),
        "image_digests": {case: dict(each) for case, each in contents.image_digests.items()},
    }
