"""Table of guarantees: one line per row, failed and undecided rows first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.guarantees.block import Block
from benchmarks.guarantees.verdicts import Share, verdict
from benchmarks.validation.checks import Counts

INTRODUCTION = """# Guarantees

What each stated number promises, and what simulations measured. `make guarantees` writes this page. Its rows are in
`benchmarks/guarantees/rows_*.py`, with setting, runs and seed. The complete table takes hours; a call takes at most an
hour and the next one continues. `--runs` gives a reduced table, whose rows are then undecided. [README.md](README.md) defines the terms, and
[library.md](library.md#all-names) lists the metrics.

**Promises**

- **Intervals** (nominal .95): at least .93 of the intervals contain the true value. The true value is the metric's value in a very large
  population. For binned errors, it has the same bins as the estimate; for `ace`, it is over the bins with at least 5 samples. Runs without
  an interval do not count. For `ece`, `rmsce`, `brier`, `nll` and `accuracy`, at least 99 % of the runs must have an interval. With ten
  classes, this applies from n = 300. With two classes, it applies from n = 300, 40 units and 200 effective samples. The number of effective
  samples is Kish's; weights and dependent units lower it.
- **Differences**: the same promise for the difference of two independent windows, written as "first minus second", and of two models on the
  same rows ("paired"). The interval for the same rows is at most as wide as that for other rows; where the interval of one error ends at 0,
  hardly narrower.
- **Widths**: the mean width of the intervals is at most 1.3 times that of an oracle. The oracle computes its interval from the same
  statistic. It knows the distribution of the statistic's noise from 2,000 further samples of the true model. "Range" is the mean width
  divided by the width of the central 95 % of the estimates from these samples. Near a true error of 0, no interval with this coverage can
  be as short as this central range. The oracle does not know either how many bins have errors. For means (`nll`) the oracle's width
  is that of the central 95 %.
- **Nulls**: at most 7 % of calibrated models are above `null_q95`, also with dependent units, if at least 20 of the 64 replicates contain
  units. If each prediction is a unit, the reference of the errors in fixed or equal-mass bins has a closed form. With named units, the
  reference is a bootstrap of the replicates. Errors over several classes (`classwise_ece`, and every error with the scope `all`) have a
  wider reference, because one label determines the gaps of all classes.
- **Power**: the share of miscalibrated models above `null_q95` is at least the promise of the row.
- **Contradictions**: no interval excludes 0 if the value is below `null_q95`.
- **Temperature**: the interval, of the lowest negative log-likelihood or Brier score, contains the true temperature in at least .93 of the
  runs that have one.
- **Maps**: these promises apply to windows of which a tenth or more is stored in the sample. In at least .95 of these windows, the map of
  the stored sample has at most 1.02 times the held-out negative log-likelihood (NLL) of the fit to all rows. In at most .05 of these
  windows, the map is worse than the temperature by more than the standard error of the NLL.
- **Promotions**: at most 2.5 % of the tests of a calibrated model promote a map.

**Settings**: K is the number of classes, n the number of predictions.

- Scores of two classes: `beta` is Beta(0.7, 2.2), `u-shaped` is Beta(0.5, 0.5), and `uniform` is uniform between .05 and .95. `confident` is
  1 − 0.9 · Beta(0.6, 3), and `corner` is uniform between .935 and .999. `accurate` is Beta(0.3, 60), where one prediction in 200 is wrong.
- Scores of three and of ten classes are from Dirichlet(0.4). "3 raters": each prediction has three independent ratings.
- "Every metric": one simulation serves all metrics of a setting. The true value of a metric with fine equal-width bins (`kde_ece`,
  `smooth_ece`, `ks`, `kuiper`, `ece_sweep`, `overconfidence_error`, `corp_miscalibration`) is that of `interval_bins` bins, which its interval
  describes. `skce` has null rows only, because its kernel is that of the run's sample; with a kernel of fixed width see "with options".
- "Two models": their logits are the true ones times a slope (1 is calibrated), with normal noise of their own.
- "With options": the true value is that of 100,000 rows whose ratings are the rates; of `skce`, with a fixed width of the kernel, the mean of
  2,000 samples. A test requires rows of every metric of the catalogue that returns an interval or a null reference.
- "Means over cases": each case has its own mean logit and, unless calibrated, its own slope. 6,000 cases were simulated, and those of a run
  are drawn from them; the true value is the mean of all.
- Constants of the library were chosen with the shapes marked *, but with other seeds. The other shapes were used for these tests only.
- Labels: `calibrated`, or drawn with the log-odds (ten classes: log-probabilities) multiplied by .6 or .8 (`slope`), or at the rate .967
  for every score (`flat`). `one bin off by .3`: the rate is the score, but .3 lower between 7/15 and 8/15. `top bin off by .1`: .1 lower
  above 14/15. `three tenths of class 0 are class 1`: the rate of class 1 includes three tenths of the probability of class 0.
- Units: "100 units of 10" has 10 predictions per unit, with one score for the unit or one score per prediction. For the stated share of
  predictions, the labels of a unit are drawn with one common random number, so that they are dependent.
- Weights: lognormal, with the stated standard deviation of their logarithm.

**Limits**, measured by an independent review with its own simulations. In these cases, the results differ from the tables:

- **Rows without ids whose scores are equal.** The rows of the tables have distinct scores. Equal rows without ids and units share a
  replicate. With scores of two decimals, intervals of `brier`, `nll` and `accuracy` are 1.5 to 2.5 times as wide as with ids. Those of
  `ece` are up to 1.25 times as wide. If there are so few distinct scores that they fill too few replicates (scores of one decimal), there
  is no interval (`tied_rows`). With ids, intervals do not get wider in this way.
- **Means that depend on a few samples** have no interval. If weights leave fewer than 120 effective samples, and fewer than half as many as
  there are units, the reason is `too_few_units`. If there are fewer than about five independent errors, or fewer than about five
  independent correct predictions, the reason is `few_errors`. If no units are named, `accuracy` then has the Clopper-Pearson interval of
  the effective samples.
- **Rare events.** Nulls of sums of gaps use the moments of binomial or Poisson counts in bins of few predictions. Those of `rmsce` and
  `debiased_ece`, and those that are drawn, take gaps as normal. Before counts were used, with a prevalence of 1 % and 5,000 to 8,000
  predictions, .08 of calibrated models were above `null_q95` of `rmsce`, `ace` and `mce`. For `ece`, it was .05. With 1,000 predictions and
  rates of half the scores, the interval of `ece` contained the true value in .85 of the runs.
- **Units of very different sizes.** With 150 units of lognormal(1.2) sizes and dependent labels, the interval of `brier` contained the true
  value in .91 of the runs, that of `nll` in .92. With 600 such units it was .94. With 80 units of lognormal(1.5) sizes, each
  with its own prevalence, the interval of `oe_ratio` contained it in .91 of 2,943 runs.
- **Units that share all chance.** Where one random number decided all labels of a unit, whose predictions had scores of their own, intervals of
  `ece` contained the true value in .91 of the runs (100 units of 10) and .89 (40 units of 25), those of `rmsce` in .89 and .86. With 60 % of
  the labels shared it was .98 and .95.
- **`ks` and `kuiper` with little data.** They have an interval from 400 and from 200 effective samples on (`too_few_units` below). With fewer,
  intervals inverted on fine bins contained the true value in .83 and .87 of the runs at n = 50, and in .89 and .91 at n = 150. From these
  sizes on it was .94 to .98 (300 runs each of three settings, n = 200 to 600). Rows of `ks` and `kuiper` below these sizes are of before.
- **Many slices** (`slice_test`): of 30 calibrated slices of 5 to 600 rows, at least one was flagged in 4, 1 and 2 of 100 runs (even, confident and
  U-shaped scores; stated: at most 5). Without Holm's rule it was 80, 48 and 78. A unit counts as fully dependent, so the test is cautious there.
- **`nll(floor=1e-7)`** with 10 % of scores at 0, of which three in ten are wrong: .95 of the intervals contained the true value at n = 600 and 3,000
  (200 runs each). With 0.5 % of such scores and n = 150 it was .86 of the runs with an interval: rows that show no small probability say nothing of it.
  With fewer than 40 rows below the floor there is none (`few_errors`): at n = 50, only unlucky windows had one, and .75 of these contained it.
- **`l2_ece_squared` of few outcomes.** It has an interval if there are 20 outcomes of each kind, and if the scores expect 20 of each or there are 60
  (`few_errors`). Where fewer are expected, only unusual windows had 20, and their estimates are too high: at n = 50, 16 of 3,000 runs had an
  interval before, and .63 of these contained the true value.
- **Other results**, 300 runs of four settings each: intervals of the bins of a reliability table contained the rate of the bin in .95 to .97 of
  the runs, those of the gain of a temperature on other rows (n = 150 and 300, 40 units of 25) the gain in .93 to .99.
- **Kinds of cases that are missing among the cases.** Where the labels of 5 % of all cases are reversed, intervals of `ml1_ece` contained the
  true value in .61 of the runs with 10 cases, .68 with 20, .92 with 50 and .97 with 100, because few cases often show none of these. Of n cases
  without a failure, up to 3/n of all cases may be failures.
- **Undecided rows** were simulated with 1,000 runs: no share is on the wrong side of its promise by more than chance explains. `make guarantees`
  continues them to 3,500 runs, which decide.
- **Few units**: there is an interval from 40 units on, whatever their names; that of an error also needs 50 effective samples by
  weight. With n = 50, `ece` has an interval in every run (.98 to .995 contained the true value, 200 runs of four settings).
- **Nulls with dependent units** are conservative: most shares above `null_q95` are 0 to .02.

**Columns**: "Measured" is the share of runs; for widths, it is the ratio. SE is the standard error of this number. "Runs" is the number of
runs that count, of all. A share *fails* when its complete 99.9 % Clopper-Pearson interval is on the wrong side of the promise. If it does
not fail, it is *undecided* when that interval is wider than .03, or when the row was not simulated yet. Otherwise it *holds*. A width holds
when the ratio is at most the promise. A row marked "earlier run" was not simulated since the cache was last emptied: its line is copied
from the previous version of this page.
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
    if slug in block.must and counts[f"{slug}/required_given"] < 0.99 * counts[f"{slug}/required"]:
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


def earlier(path: Path) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the cells of the page by metric, setting, promise and seed."""
    rows = path.read_text().splitlines() if path.exists() else []
    cells = [tuple(cell.strip() for cell in row.split("|")[1:-1]) for row in rows]
    return {_named(row): row for row in cells if len(row) == 8 and row[6].isdigit()}


def _named(cells: tuple[str, ...]) -> tuple[str, ...]:
    return (*cells[:3], cells[6])


def _as_before(line: Line, before: Mapping[tuple[str, ...], tuple[str, ...]]) -> Line:
    """Return a row that was not simulated as it was on the page before."""
    promise = f"{'≥' if line.block.at_least else '≤'} {line.block.promise:g}"
    name = (f"`{line.slug}`", _setting(line), promise, str(line.block.seed))
    row = before.get(name)
    if line.note != "not run" or row is None or "not run" in row[7]:
        return line
    found = row[7].removesuffix(" (earlier run)")
    return replace(line, cells=row[2:6], verdict=found.partition(" ")[0], note="earlier run")


def write(path: Path, totals: Sequence[tuple[Block, Counts | None]]) -> int:
    """Write the page, print it, and return the number of failed rows."""
    before = earlier(path)
    every = [_as_before(line, before) for line in lines(totals)]
    parts = [INTRODUCTION, _summary(every)]
    for section in dict.fromkeys(line.block.section for line in every):
        title = section.partition(" ")[2]
        parts.append(f"## {title}\n\n{_table([x for x in every if x.block.section == section])}")
    text = "\n".join(parts)
    path.write_text(text)
    print(text)
    return sum(line.verdict == "fails" for line in every)


def _summary(every: list[Line]) -> str:
    counts = Counter(line.verdict for line in every)
    text = ", ".join(f"{counts[name]} {name}" for name in ("holds", "fails", "undecided"))
    bad = [line for line in every if line.verdict != "holds"]
    text = f"Verdicts of {len(every)} rows: {text}.\n"
    return text + ("\nRows that do not hold:\n\n" + _table(bad) if bad else "")


def _table(chosen: list[Line]) -> str:
    head = "| Metric | Setting | Promise | Measured | SE | Runs | Seed | Verdict |\n|---|---|---|---|---|---|---|---|\n"
    return head + "".join(_cells(line) for line in chosen)


def _setting(line: Line) -> str:
    return line.block.text + ("*" if line.block.tuned_on else "")


def _cells(line: Line) -> str:
    note = f" ({line.note})" if line.note else ""
    cells = (
        f"`{line.slug}`", _setting(line), *line.cells, str(line.block.seed), line.verdict + note,
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |\n"
