"""A second version of the notions of calibration, from their definitions: raw rows, plain loops, float64.

It takes the rows of `tests.calibrant.reference`, which share no arithmetic with the code under test.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
from scipy.integrate import quad
from scipy.stats import beta

from tests.calibrant.reference import Row, bin_of, scored

Sample = tuple[float, float, float]  # score, weight, weight of hits


def samples(rows: list[Row], scope: str, policy: str) -> list[Sample]:
    """One a row and class, in order of rows."""
    return [(s, row.weight * n, row.weight * h) for row, s, n, h in scored(rows, scope, policy)]


def by_score(rows: list[Sample]) -> list[Sample]:
    """Samples of one score together, in order."""
    together: dict[float, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for score, weight, hits in rows:
        together[score][0] += weight
        together[score][1] += hits
    return [(s, w, h) for s, (w, h) in sorted(together.items()) if w > 0]


def bins_of_mass(rows: list[Sample], n_bins: int) -> list[list[Sample]]:
    """Equal mass, ties together: a score begins bin floor(weight below it * n_bins / whole)."""
    ordered = by_score(rows)
    complete = sum(Fraction(w) for _, w, _ in ordered)
    below, found = Fraction(0), defaultdict(list)
    for sample in ordered:
        found[math.floor(below * n_bins / complete)].append(sample)
        below += Fraction(sample[1])
    return [found[k] for k in sorted(found)]


def bins_of_rank(rows: list[Sample], n_bins: int) -> list[list[Sample]]:
    """Consecutive groups of rows in stable order of score, larger first."""
    ordered = sorted(rows, key=lambda row: row[0])
    parts = np.array_split(np.arange(len(ordered)), n_bins)
    return [[ordered[i] for i in part] for part in parts if len(part)]


def gap(part: list[Sample]) -> tuple[float, float]:
    """Weight and accuracy less confidence."""
    w = math.fsum(x[1] for x in part)
    return w, (math.fsum(x[2] for x in part) - math.fsum(x[0] * x[1] for x in part)) / w


def mean_gap(parts: list[list[Sample]], norm_of: int = 1) -> float:
    pairs = [gap(part) for part in parts]
    complete = math.fsum(w for w, _ in pairs)
    return math.fsum(w * abs(g) ** norm_of for w, g in pairs) ** (1 / norm_of) / complete ** (
        1 / norm_of
    )


def sweep(rows: list[Sample], ties: str, norm_of: int = 1) -> tuple[float, int]:
    split = bins_of_rank if ties == "split" else bins_of_mass
    most = len(rows) if ties == "split" else len(by_score(rows))
    best, chosen = split(rows, 1), 1
    for n_bins in range(2, most + 1):
        parts = split(rows, n_bins)
        rates = [math.fsum(x[2] for x in p) / math.fsum(x[1] for x in p) for p in parts]
        if any(b < a - 1e-12 for a, b in itertools.pairwise(rates)):
            break
        best, chosen = parts, n_bins
    return mean_gap(best, norm_of), chosen


def nixon(
    rows: list[Row], policy: str, n_bins: int, ties: str, epsilon: float | None = None
) -> float:
    """Mean over classes of the plain mean of the ranges' gaps."""
    values = []
    for k in range(len(rows[0].p)):
        own = [x for x in samples(rows, f"class:{k}", policy) if epsilon is None or x[0] > epsilon]
        if ties == "split":
            parts = bins_of_rank(own, n_bins) if own else []
        else:
            parts = ranges_behind_ties(own, n_bins)
        values.append(math.fsum(abs(gap(p)[1]) for p in parts) / len(parts) if parts else 0.0)
    return math.fsum(values) / len(values)


def ranges_behind_ties(rows: list[Sample], n_bins: int) -> list[list[Sample]]:
    """Cuts at shares of the mass, moved behind the score that each of them falls into."""
    ordered = by_score(rows)
    complete = sum(Fraction(w) for _, w, _ in ordered)
    parts: list[list[Sample]] = [[]]
    below, cut = Fraction(0), 1
    for sample in ordered:
        parts[-1].append(sample)
        below += Fraction(sample[1])
        if cut < n_bins and below >= complete * cut / n_bins:
            parts.append([])
            while cut < n_bins and below >= complete * cut / n_bins:
                cut += 1
    return [part for part in parts if part]


def macro_ce(rows: list[Sample]) -> float:
    hits = math.fsum(h for _, _, h in rows)
    misses = math.fsum(w - h for _, w, h in rows)
    of_hits = math.fsum(h * (1 - s) for s, _, h in rows) / hits
    return (of_hits + math.fsum((w - h) * s for s, w, h in rows) / misses) / 2


def cumulative(rows: list[Sample]) -> list[float]:
    """C_0 = 0 and the curve after each distinct score."""
    complete = math.fsum(w for _, w, _ in rows)
    steps = [(h - w * s) / complete for s, w, h in by_score(rows)]
    return [math.fsum(steps[:j]) for j in range(len(steps) + 1)]


def ks(rows: list[Sample]) -> float:
    return max(abs(c) for c in cumulative(rows))


def kuiper(rows: list[Sample]) -> float:
    curve = cumulative(rows)
    return max(curve) - min(curve)


def overconfidence(rows: list[Sample], n_bins: int, edges: str) -> float:
    parts: dict[int, list[Sample]] = defaultdict(list)
    for sample in rows:
        if sample[1] > 0:
            parts[bin_of(sample[0], n_bins, edges)].append(sample)
    complete = math.fsum(w for _, w, _ in rows)
    total = 0.0
    for part in parts.values():
        w = math.fsum(x[1] for x in part)
        confidence = math.fsum(x[0] * x[1] for x in part) / w
        total += w * confidence * max(-gap(part)[1], 0.0)
    return total / complete


def smooth_at(rows: list[Sample], sigma: float) -> float:
    """Integral of the absolute mean residual under a Gaussian reflected at 0 and 1."""
    complete = math.fsum(w for _, w, _ in rows)
    parts = [(s, (h - w * s) / complete) for s, w, h in by_score(rows)]
    reach = math.ceil(4 * sigma) + 1

    def density(distance: float) -> float:
        return math.exp(-0.5 * (distance / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))

    def residual(t: float) -> float:
        return abs(
            math.fsum(
                d * sum(density(t - sign * s - 2 * k) for sign in (1, -1) for k in range(-reach, reach + 1))
                for s, d in parts
            )
        )  # fmt: skip

    return float(quad(residual, 0.0, 1.0, limit=400, epsabs=1e-10)[0])


def isotonic(rows: list[Sample]) -> list[tuple[float, float, float, float]]:
    """Score, weight, rate and its isotonic fit by the min-max formula."""
    ordered = by_score(rows)
    n = len(ordered)

    def mean(a: int, b: int) -> float:
        return math.fsum(h for _, _, h in ordered[a:b]) / math.fsum(w for _, w, _ in ordered[a:b])

    fit = [
        max(min(mean(a, b) for b in range(i + 1, n + 1)) for a in range(i + 1)) for i in range(n)
    ]
    return [(s, w, h / w, f) for (s, w, h), f in zip(ordered, fit, strict=True)]


def score_of(forecast: float, rate: float, kind: str) -> float:
    if kind == "brier":
        return rate * (1 - forecast) ** 2 + (1 - rate) * forecast**2
    hit = 0.0 if rate == 0 else -rate * math.log(forecast)
    return hit + (0.0 if rate == 1 else -(1 - rate) * math.log(1 - forecast))


def corp(rows: list[Sample], kind: str) -> dict[str, float]:
    fitted = isotonic(rows)
    complete = math.fsum(w for _, w, _, _ in fitted)
    base = math.fsum(w * r for _, w, r, _ in fitted) / complete
    own = math.fsum(w * score_of(s, r, kind) for s, w, r, _ in fitted) / complete
    best = math.fsum(w * score_of(f, r, kind) for _, w, r, f in fitted) / complete
    uncertainty = score_of(base, base, kind)
    return {
        "corp_miscalibration": own - best,
        "corp_discrimination": uncertainty - best,
        "corp_uncertainty": uncertainty,
    }


def spiegelhalter(rows: list[Sample], unit_size: list[int]) -> float:
    """With the variance of fully dependent ratings and unit members."""
    top = math.fsum((h - w * s) * (1 - 2 * s) for s, w, h in rows)
    variance = math.fsum(
        u * (w * (1 - 2 * s)) ** 2 * s * (1 - s) for (s, w, _), u in zip(rows, unit_size, strict=True)
    )  # fmt: skip
    return top / math.sqrt(variance)


def hosmer_lemeshow(rows: list[Sample], n_bins: int) -> float:
    """Of single labels of weight one."""
    total = 0.0
    for part in bins_of_mass(rows, n_bins):
        n, difference = gap(part)
        mean = math.fsum(x[0] * x[1] for x in part) / n
        total += (n * difference) ** 2 / (n * mean * (1 - mean))
    return total


def uce(rows: list[Row], policy: str, n_bins: int, edges: str) -> float:
    parts: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for row, _, n, h in scored(rows, "top_label", policy):
        entropy = -math.fsum(p * math.log(p) for p in row.p if p > 0) / math.log(len(row.p))
        if row.weight * n > 0:
            at = bin_of(min(max(entropy, 0.0), 1.0), n_bins, edges)
            parts[at].append((entropy, row.weight * n, row.weight * h))
    complete = math.fsum(x[1] for part in parts.values() for x in part)
    total = 0.0
    for part in parts.values():
        w = math.fsum(x[1] for x in part)
        error = 1 - math.fsum(x[2] for x in part) / w
        total += w * abs(error - math.fsum(x[0] * x[1] for x in part) / w)
    return total / complete


def kde(rows: list[Row], policy: str, leave: str, bandwidth: float) -> float:
    """Rating by rating; for `mean` the samples are predictions, which are always left out whole."""
    expanded: list[tuple[int, float, float, float]] = []  # row, score, weight, hit share
    for i, (row, score, n, h) in enumerate(scored(rows, "top_label", policy)):
        if policy == "mean":
            expanded.append((i, score, row.weight, h))
        else:
            expanded += [(i, score, row.weight, float(r < round(h))) for r in range(round(n))]
    z = np.clip([e[1] for e in expanded], 1e-6, 1 - 1e-6)
    kernel = beta.pdf(z[:, None], z[None] / bandwidth + 1, (1 - z[None]) / bandwidth + 1)
    total = 0.0
    for i, (row_i, _, weight, hit) in enumerate(expanded):
        top, bottom = [], []
        for j, (row_j, _, other, hit_j) in enumerate(expanded):
            if i == j or (leave == "instance" and row_i == row_j):
                continue
            top.append(kernel[i, j] * other * hit_j)
            bottom.append(kernel[i, j] * other)
        total += weight * abs(math.fsum(top) / math.fsum(bottom) - z[i])
        del hit
    return total / math.fsum(e[2] for e in expanded)


def density_error(
    rows: list[Sample], counts: float, of: str = "all", sd: float | None = None
) -> float:
    """Zhang's estimator by quadrature: triweight densities of scores and of hits, mirrored at 0 and 1."""
    complete = math.fsum(w for _, w, _ in rows)
    held = [(s, hit if of == "correct" else w) for s, w, hit in rows]
    mass = math.fsum(w for _, w in held)
    mean = math.fsum(w * s for s, w in held) / mass
    spread = math.sqrt(math.fsum(w * (s - mean) ** 2 for s, w in held) / mass)
    reach = 3 * (sd or spread * (2 * counts) ** -0.2)

    def kernel(u: float) -> float:
        return 35 / 32 * max(1 - u * u, 0.0) ** 3 / reach

    def density(t: float, column: int) -> float:
        return math.fsum(
            x[column] * sum(kernel((t - at) / reach) for at in (x[0], -x[0], 2 - x[0]))
            for x in rows
        )

    ends = sorted(
        {0.0, 1.0} | {min(max(m, 0.0), 1.0) for s, _, _ in rows for m in (s - reach, s, s + reach)}
    )
    total = 0.0
    for low, high in itertools.pairwise(ends):
        total += quad(
            lambda t: abs(t * density(t, 1) - min(density(t, 2), density(t, 1))),
            low,
            high,
            epsabs=1e-9,
        )[0]
    return total / complete


def entropy(p: list[float]) -> float:
    return -math.fsum(v * math.log(v) for v in p if v > 0)


def against_votes(rows: list[Row]) -> dict[str, float]:
    """EntCE, DistCE and RankCS, rows by weight."""
    sums: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        y = [v / row.n_ratings for v in row.ratings]
        classes = range(len(y))
        pairs = [(a, b) for a in classes for b in classes if y[a] > y[b]]
        values = {
            "weight": 1.0,
            "ent_ce": abs(entropy(y) - entropy(row.p)),
            "mean_signed": entropy(y) - entropy(row.p),
            "dist_ce": math.fsum(abs(a - b) for a, b in zip(y, row.p, strict=True)) / 2,
            "rank_cs": sorted(classes, key=lambda k: y[k]) == sorted(classes, key=lambda k: row.p[k]),
            "strict_pairs": all(row.p[a] > row.p[b] for a, b in pairs),
            "untied_fraction": len(set(row.ratings)) == len(row.ratings),
        }  # fmt: skip
        for name, value in values.items():
            sums[name].append(row.weight * value)
    complete = math.fsum(sums.pop("weight"))
    return {name: math.fsum(parts) / complete for name, parts in sums.items()}


def disagreement(rows: list[Row]) -> float:
    """Over every ordered pair of two raters of a row."""
    total, weight = 0.0, 0.0
    for row in rows:
        raters = [k for k, ratings in enumerate(row.ratings) for _ in range(ratings)]
        if len(raters) < 2:
            continue
        pairs = [(a, b) for i, a in enumerate(raters) for j, b in enumerate(raters) if i != j]
        total += row.weight * sum(a != b for a, b in pairs) / len(pairs)
        weight += row.weight
    return total / weight
