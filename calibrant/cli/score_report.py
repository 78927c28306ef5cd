"""Contents of the report that `calibrant score -o` writes."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.evaluation import FileEvaluation
from calibrant.cli.input_files.scored_data import ScoredData
from calibrant.core.documents import Result
from calibrant.figures.numbers import plain_number
from calibrant.input.row_sums import SUM_LENIENT
from calibrant.kernel import status
from calibrant.quality_report import LeftOut, ReportContents, Subgroup

LOOKS_LIKE_PROBABILITIES = "the scores were read as logits, but every row is in [0, 1] and sums to 1, as probabilities do. If they are: --probabilities"


def contents_of(
    found: FileEvaluation, title: str, other: ScoredData | None = None
) -> ReportContents:
    """Return the contents of the report of an evaluation."""
    batch = found.data.batch
    metrics: Result = found.report.to_dict()
    return ReportContents(
        title=title,
        metrics=metrics,
        subject=subject(found.data),
        classes=found.data.classes or (),
        generated_at=now(),
        reliability=found.reliability.to_dict(),
        temperature=found.temperature.to_dict(),
        decision_curve=None if found.decision_curve is None else found.decision_curve.to_dict(),
        class_reliability={name: each.to_dict() for name, each in found.class_reliability.items()},
        class_errors=found.class_errors,
        tolerance=found.settings.tolerance,
        detectable=found.detectable,
        ratings_per_prediction=found.ratings_per_prediction,
        n_cases=None if batch.cases is None else len(set(batch.cases.tolist()) - {None}),
        left_out=left_out(found),
        subgroups=[Subgroup(name, each.to_dict()) for name, each in found.subgroups.items()],
        comparison=None
        if found.compared is None or other is None
        else {"name": other.files[0][0].name, "metrics": found.compared},
        readers=found.readers,
        odd_reader=found.odd_reader,
        rater_disagreement=found.rater_disagreement,
        compat=found.compat,
        extra_tables=[] if found.compat is None else [peers_table(found.compat)],
        versions=[*software(), *digests(found.data), *([] if other is None else digests(other))],
    )


def peers_table(compat: Result) -> tuple[str, list[str], list[list[str]]]:
    """Return the values of other libraries compared with ours, as a table of texts."""
    rows = [
        [
            f"{peer} {library['version']}",
            function,
            plain_number(each["value"]) if each["value"] is not None else f"none: {each['reason']}",
            f"{each['metric']} {plain_number(each['ours'])}",
            each["why"],
        ]
        for peer, library in compat.items()
        for function, each in library["values"].items()
    ]
    return "Other libraries", ["Library", "Function", "Value", "Ours", "Why they differ"], rows


def subject(data: ScoredData) -> list[tuple[str, str]]:
    """Return what was read, and how."""
    path, *labels = [each[0].name for each in data.files]
    kind = "logits" if data.is_logits else "probabilities"
    rows = [("Predictions", f"{path}, read as {kind} ({data.why_logits})")]
    columns = ", ".join(data.rater_columns) if data.rater_columns else f"column {data.label_column}"
    rows.append(("Labels", f"{labels[0] if labels else path}: {columns}"))
    if data.unused_id is not None:
        file, column = data.unused_id
        text = f"matched by order; the column {column} of {file} was not used. To match by it: --id {column}, a column of both files"
        rows.append(("Rows", text))
    if data.batch.is_logits and look_like_probabilities(data.batch.scores):
        rows.append(("Warning", LOOKS_LIKE_PROBABILITIES))
    rows += [("Scores", text) for text in data.batch.notes.sentences()]
    if data.classes:
        rows.append(("Classes", ", ".join(data.classes)))
    return rows


def look_like_probabilities(scores: NDArray[np.float64]) -> bool:
    """Return whether all rows of logits are in [0, 1] and sum to 1.

    >>> look_like_probabilities(np.array([[0.25, 0.75]])), look_like_probabilities(np.array([[0.0, 1.2]]))
    (True, False)
    """
    if scores.min() < 0.0 or scores.max() > 1.0:
        return False
    return bool((np.abs(scores.sum(axis=1) - 1.0) <= SUM_LENIENT).all())


def left_out(found: FileEvaluation) -> list[LeftOut]:
    """Return the rows that are not in the results."""
    batch = found.data.batch
    unlabelled = int(np.sum(batch.row_total == 0))
    rows = []
    if unlabelled:
        they = "it" if unlabelled == 1 else "them"
        rows.append(LeftOut(_without(unlabelled, "label"), unlabelled, f"no reader rated {they}."))
    if found.data.slices is not None:
        missing = sum(each is None for each in found.data.slices)
        if missing:
            why = "without a value in the column of subgroups; part of the overall results."
            rows.append(LeftOut(_without(missing, "subgroup"), missing, why))
    return rows


def _without(n: int, what: str) -> str:
    return f"prediction{'' if n == 1 else 's'} without a {what}"


def software() -> list[tuple[str, str]]:
    """Return the versions of the software."""
    return [
        ("calibrant", version("calibrant")),
        ("numpy, scipy", f"{version('numpy')}, {version('scipy')}"),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("Sums computed by", f"the compiled kernel of calibrant ({status().variant})"),
    ]


def digests(data: ScoredData) -> list[tuple[str, str]]:
    """Return the digests of the files."""
    return [(path.name, f"SHA-256 {digest}") for path, digest in data.files]


def now() -> str:
    """Return the time as RFC 3339 text, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
