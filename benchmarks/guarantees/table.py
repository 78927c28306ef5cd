"""Table of guarantees: one line per row, failed and undecided rows first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.guarantees.block import Block
from benchmarks.guarantees.checks import Counts
from benchmarks.guarantees.verdicts import Share, verdict

INTRODUCTION = """# Guarantees

What each stated number promises, and what simulations measured. `make guarantees` writes this page. Its rows are in
`benchmarks/guarantees/rows_*.py`, with setting, runs and seed. It takes at most 45 minutes on two cores and continues where it was
interrupted. Seeds differ from those that constants were chosen with. Score shapes marked * were used to choose constants; the
others only judge them.

- **Intervals** (nominal .95): at least .93 contain the true value, where an interval is given. The true value is the population's value of
  the same functional: for binned errors over the served bins, for `ace` over the bins with at least 5 samples. "Given" is the share
  of runs with an interval. It must be given for `ece`, `rmsce`, `brier`, `nll` and `accuracy` with two classes from n = 300, 40
  units and 200 effective samples (Kish's number: weights and dependent units lower it), and with ten classes from n = 300.
- **Widths**: the mean width is at most 1.3 times that of an oracle. The oracle inverts the same statistic, and knows its noise from
  2,000 fresh samples of the true model. "Range" is the width relative to the central 95 % of the fresh estimates. Near a true error
  of 0 no interval with this coverage can be as short as that range.
- **Nulls**: at most 7 % of calibrated models are above `null_q95`, also with dependent units, from 20 filled replicates. Power is the
  share of miscalibrated models above it.
- **Temperature**: the interval contains the true temperature in at least .93 of runs, where one is given.
- **Alarm**: at most 10 % of calibrated years have an alarm, with a run length of ten years.
- **Contradictions**: intervals that exclude 0 although the value is below `null_q95`.

A row *fails* when its 99.9 % Clopper-Pearson interval is on the wrong side of the promise. It is *undecided* when that interval is wider than
.03. Otherwise it holds. SE is the standard error of the share.
"""


@dataclass(frozen=True)
class Line:
    """A row of the table with its verdict."""

    block: Block
    slug: str
    cells: tuple[str, ...]
    verdict: str
    note: str = ""


def lines(totals: Sequence[tuple[Block, Counts | None]]) -> Iterator[Line]:
    """Return one line per metric of each block."""
    for block, counts in totals:
        for slug in block.slugs:
            if counts is None:
                yield Line(block, slug, ("–",) * 4, "undecided", "not run")
            elif block.check == "width":
                yield _width_line(block, slug, counts)
            else:
                yield _share_line(block, slug, counts)


def _share_line(block: Block, slug: str, counts: Counts) -> Line:
    given, runs = int(counts[f"{slug}/given"]), int(counts[f"{slug}/runs"] or block.runs)
    share = Share(int(counts[f"{slug}/held"]), given)
    found = verdict(share, block.promise, block.at_least)
    note = ""
    if slug in block.must and given < 0.99 * runs:
        found, note = "fails", "interval missing"
    sign = "≥" if block.at_least else "≤"
    cells = (
        f"{sign} {block.promise:g}",
        f"{share.value:.3f}" if given else "–",
        f"{share.standard_error:.3f}" if given else "–",
        f"{given:,} of {runs:,}",
    )
    return Line(block, slug, cells, found if given else "undecided", note)


def _width_line(block: Block, slug: str, counts: Counts) -> Line:
    given = int(counts[f"{slug}/given"])
    if not given or not counts[f"{slug}/oracle"]:
        return Line(block, slug, (f"≤ {block.promise}", "–", "–", "0"), "undecided", "no interval")
    ratio = counts[f"{slug}/width"] / counts[f"{slug}/oracle"]
    spread = counts[f"{slug}/width"] / counts[f"{slug}/range"]
    cells = (
        f"≤ {block.promise}",
        f"{ratio:.2f}",
        f"range {spread:.2f}",
        f"{given:,} of {block.runs:,}",
    )
    return Line(block, slug, cells, "holds" if ratio <= block.promise else "fails")


def write(path: Path, totals: Sequence[tuple[Block, Counts | None]]) -> int:
    """Write the page, print it, and return the number of failed rows."""
    every = list(lines(totals))
    parts = [INTRODUCTION, _summary(every)]
    for section in dict.fromkeys(line.block.section for line in every):
        parts.append(f"## {section}\n\n{_table([x for x in every if x.block.section == section])}")
    text = "\n".join(parts)
    path.write_text(text)
    print(text)
    return sum(line.verdict == "fails" for line in every)


def _summary(every: list[Line]) -> str:
    counts = Counter(line.verdict for line in every)
    text = ", ".join(f"{counts[name]} {name}" for name in ("holds", "fails", "undecided"))
    bad = [line for line in every if line.verdict != "holds"]
    text = f"Of {len(every)} rows: {text}.\n"
    return text + ("\n" + _table(bad) if bad else "")


def _table(chosen: list[Line]) -> str:
    head = "| Metric | Setting | Promise | Measured | SE | Runs | Seed | Verdict |\n|---|---|---|---|---|---|---|---|\n"
    return head + "".join(_cells(line) for line in chosen)


def _cells(line: Line) -> str:
    mark = "*" if line.block.tuned_on else ""
    note = f" ({line.note})" if line.note else ""
    cells = (
        f"`{line.slug}`", line.block.text + mark, *line.cells, str(line.block.seed), line.verdict + note,
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |\n"
