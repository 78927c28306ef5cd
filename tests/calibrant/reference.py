"""A second version of the ground floor, straight from the definitions: raw rows, plain loops, float64.

It shares no arithmetic with the code under test. Only the choice of one rating (`single`) and the hash that assigns
replicates are taken from the batch, because they are arbitrary by design.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from calibrant import Batch
from calibrant.core.hashing import hash_rows

POLICIES = ("pooled", "mean", "majority", "single")


@dataclass
class Row:
    """A labelled prediction."""

    p: list[float]
    log_p: list[float]
    ratings: list[int]
    weight: float
    unit: int
    replicate: int
    single: int

    @property
    def n_ratings(self) -> int:
        return sum(self.ratings)

    @property
    def top(self) -> int:
        return self.p.index(max(self.p))

    @property
    def majority(self) -> int:
        return self.ratings.index(max(self.ratings))

    def samples(self, policy: str) -> float:
        """Weight of the row under a policy, its own weight apart."""
        return self.n_ratings if policy == "pooled" else 1

    def share(self, class_index: int, policy: str) -> float:
        """That weight's part that falls on a class."""
        if policy == "pooled":
            return self.ratings[class_index]
        if policy == "mean":
            return self.ratings[class_index] / self.n_ratings
        return float((self.majority if policy == "majority" else self.single) == class_index)


def rows_of(batch: Batch) -> list[Row]:
    """The labelled rows, with softmax and hashes of their own."""
    counts = batch.label_counts
    units = batch.unit_hash
    placed = hash_rows(batch.scores) if batch.unit_source == "row" else units
    numbers = {h: i for i, h in enumerate(dict.fromkeys(units.tolist()))}
    result = []
    for i in range(batch.n):
        if counts[i].sum() == 0:
            continue
        p, log_p = softmax(batch.scores[i]) if batch.is_logits else given(batch.scores[i])
        unit = int(units[i])
        weight = 1.0 if batch.weights is None else float(batch.weights[i])
        chosen = int(batch.chosen_rating[i])
        result.append(
            Row(
                p,
                log_p,
                counts[i].tolist(),
                weight,
                numbers[unit],
                splitmix(int(placed[i]) ^ 0xA5A5A5A5) >> 58,
                chosen,
            )
        )
    if batch.units is None and batch.cases is None:
        for number, row in enumerate(result):
            row.unit = number
    return result


def splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def softmax(z: np.ndarray) -> tuple[list[float], list[float]]:
    top = max(z)
    powers = [math.exp(v - top) for v in z]
    total = math.fsum(powers)
    return [v / total for v in powers], [float(v - top - math.log(total)) for v in z]


def given(p: np.ndarray) -> tuple[list[float], list[float]]:
    return [float(v) for v in p], [math.log(v) if v > 0 else -math.inf for v in p]


def bin_of(score: float, n_bins: int, edges: str) -> int:
    """By comparison with every edge k / n_bins, rounded once."""
    for k in range(n_bins):
        low, high = k / n_bins, (k + 1) / n_bins
        if edges == "right" and (low < score <= high or (k == 0 and score == 0.0)):
            return k
        if edges == "left" and (low <= score < high or (k == n_bins - 1 and score == 1.0)):
            return k
    raise AssertionError(f"{score!r} lies in no bin")


def scored(rows: list[Row], scope: str, policy: str) -> Iterator[tuple[Row, float, float, float]]:
    """(row, score, samples, hits) of a scope; several a row for `all`."""
    for row in rows:
        if scope == "top_label":
            classes = [row.top]
        elif scope == "all":
            classes = list(range(len(row.p)))
        else:
            classes = [1 if scope == "positive" else int(scope.split(":")[1])]
        for k in classes:
            yield row, row.p[k], row.samples(policy), row.share(k, policy)


def table(
    rows: list[Row], scope: str, policy: str, n_bins: int, edges: str
) -> dict[str, np.ndarray]:
    """The binned table with every column that cells keep."""
    sizes: dict[int, int] = defaultdict(int)
    for row in rows:
        sizes[row.unit] += 1
    names = (
        "count",
        "predictions",
        "weight",
        "confidence",
        "correct",
        "correct_squared",
        "weight_squared",
        "null_variance",
    )
    bins: dict[str, list[list[float]]] = {name: [[] for _ in range(n_bins)] for name in names}
    for row, score, samples, hits in scored(rows, scope, policy):
        at = bin_of(score, n_bins, edges)
        weight = row.weight * samples
        # Squares are of a sample: a rating is hit or missed, a mean's hit is a share.
        squared = row.weight * hits**2 if policy == "mean" else row.weight * hits
        values = {
            "count": samples,
            "predictions": 1,
            "weight": weight,
            "confidence": weight * score,
            "correct": row.weight * hits,
            "correct_squared": squared,
            "weight_squared": row.weight**2 * samples,
            "null_variance": sizes[row.unit] * weight**2 * score * (1.0 - score),
        }
        for name, value in values.items():
            bins[name][at].append(value)
    return {name: np.array([math.fsum(part) for part in parts]) for name, parts in bins.items()}


def gaps(columns: dict[str, np.ndarray], min_count: float = 0) -> list[tuple[float, float]]:
    """(weight, |accuracy - confidence|) of the bins that are not empty."""
    result = []
    for m in range(len(columns["weight"])):
        w = columns["weight"][m]
        if w > 0 and columns["count"][m] >= min_count:
            result.append((w, abs(columns["correct"][m] / w - columns["confidence"][m] / w)))
    return result


def ece(columns: dict[str, np.ndarray]) -> float:
    pairs = gaps(columns)
    return math.fsum(w * g for w, g in pairs) / math.fsum(w for w, _ in pairs)


def mce(columns: dict[str, np.ndarray]) -> float:
    return max(g for _, g in gaps(columns))


def ace(columns: dict[str, np.ndarray]) -> float:
    pairs = gaps(columns)
    return math.fsum(g for _, g in pairs) / len(pairs)


def rmsce(columns: dict[str, np.ndarray]) -> float:
    pairs = gaps(columns)
    return math.sqrt(math.fsum(w * g * g for w, g in pairs) / math.fsum(w for w, _ in pairs))


def classwise_ece(rows: list[Row], policy: str, n_bins: int, edges: str) -> float:
    """Mean over all classes of one-against-rest ECE."""
    n_classes = len(rows[0].p)
    return (
        math.fsum(ece(table(rows, f"class:{k}", policy, n_bins, edges)) for k in range(n_classes))
        / n_classes
    )


def all_label_ece(rows: list[Row], policy: str, n_bins: int, edges: str) -> float:
    return ece(table(rows, "all", policy, n_bins, edges))


def score_sums(rows: list[Row], policy: str) -> dict[str, float]:
    """Sums of the proper scores over ratings, those at probability 0 outside the logarithmic one."""
    parts: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        parts["samples"].append(row.samples(policy))
        parts["predictions"].append(1)
        parts["weight"].append(row.weight * row.samples(policy))
        for k in range(len(row.p)):
            share = row.share(k, policy)
            weight = row.weight * share
            parts["brier"].append(
                weight * math.fsum((row.p[j] - (j == k)) ** 2 for j in range(len(row.p)))
            )
            parts["correct"].append(weight * (k == row.top))
            if share and row.log_p[k] == -math.inf:
                parts["n_zero_probability"].append(
                    row.ratings[k] if policy in ("pooled", "mean") else 1
                )
            elif share:
                parts["weight_finite"].append(weight)
                parts["nll"].append(-weight * row.log_p[k])
    names = (
        "samples",
        "predictions",
        "n_zero_probability",
        "weight",
        "weight_finite",
        "brier",
        "nll",
        "correct",
    )
    return {name: math.fsum(parts[name]) for name in names}


def null_scores(rows: list[Row], policy: str) -> dict[str, float]:
    """Mean and variance of the Brier and accuracy sums with labels drawn from the predictions, a unit as one draw."""
    sizes: dict[int, int] = defaultdict(int)
    for row in rows:
        sizes[row.unit] += 1
    result = dict.fromkeys(
        ("brier_null", "brier_null_variance", "accuracy_null", "accuracy_null_variance"), 0.0
    )
    for row in rows:
        weight, top = row.weight * row.samples(policy), max(row.p)
        losses = [
            math.fsum((row.p[j] - (j == k)) ** 2 for j in range(len(row.p)))
            for k in range(len(row.p))
        ]
        mean = math.fsum(p * loss for p, loss in zip(row.p, losses, strict=True))
        variance = math.fsum(p * (loss - mean) ** 2 for p, loss in zip(row.p, losses, strict=True))
        result["brier_null"] += weight * mean
        result["brier_null_variance"] += sizes[row.unit] * weight**2 * variance
        result["accuracy_null"] += weight * top
        result["accuracy_null_variance"] += sizes[row.unit] * weight**2 * top * (1.0 - top)
    return result


def unit_products(
    rows: list[Row], scope: str, bins: int
) -> dict[tuple[int, int], tuple[float, ...]]:
    """By pair of bins: units in both, predictions, sums of the products of their weights by ratings and by predictions."""
    of_unit: dict[int, dict[int, list[float]]] = defaultdict(dict)
    for row, score, _, _ in scored(rows, scope, "mean"):
        sums = of_unit[row.unit].setdefault(bin_of(score, bins, "right"), [0.0, 0.0, 0.0])
        for i, value in enumerate((1, row.weight * row.n_ratings, row.weight)):
            sums[i] += value
    result: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0] * 4)
    for cells in of_unit.values():
        for a in cells:
            for b in cells:
                if a <= b:
                    pair = result[a, b]
                    pair[0] += 1
                    pair[1] += cells[a][0] if a == b else 0
                    pair[2] += cells[a][1] * cells[b][1]
                    pair[3] += cells[a][2] * cells[b][2]
    return {pair: tuple(values) for pair, values in result.items()}


def temperature_sums(rows: list[Row], policy: str, beta: float) -> dict[str, float]:
    """Losses of softmax(beta log p) and their derivatives by beta."""
    sums: dict[str, float] = defaultdict(float)
    by_unit: dict[int, float] = defaultdict(float)
    brier_by_unit: dict[int, float] = defaultdict(float)
    for row in rows:
        finite = [v for v in row.log_p if v > -math.inf]
        top = max(finite)
        powers = [math.exp(beta * (v - top)) if v > -math.inf else 0.0 for v in row.log_p]
        total = math.fsum(powers)
        q = [v / total for v in powers]
        z = [v - top if v > -math.inf else 0.0 for v in row.log_p]
        mean = math.fsum(a * b for a, b in zip(q, z, strict=True))
        variance = math.fsum(a * (b - mean) ** 2 for a, b in zip(q, z, strict=True))
        gradient = 0.0
        for k in range(len(q)):
            weight = row.weight * row.share(k, policy)
            sums["weight_all"] += weight
            sums["brier"] += weight * math.fsum((q[j] - (j == k)) ** 2 for j in range(len(q)))
            # d q_j / d beta = q_j (z_j - mean)
            slope = math.fsum(2.0 * (q[j] - (j == k)) * q[j] * (z[j] - mean) for j in range(len(q)))
            sums["brier_d1"] += weight * slope
            brier_by_unit[row.unit] += weight * slope
            # d2 q_j / d beta2 = q_j ((z_j - mean)^2 - variance)
            sums["brier_d2"] += weight * math.fsum(
                2.0 * (q[j] * (z[j] - mean)) ** 2
                + 2.0 * (q[j] - (j == k)) * q[j] * ((z[j] - mean) ** 2 - variance)
                for j in range(len(q))
            )
            if row.log_p[k] > -math.inf:
                sums["weight"] += weight
                sums["nll"] += weight * (math.log(total) - beta * z[k])
                gradient += weight * (mean - z[k])
                sums["nll_d2"] += weight * variance
        sums["nll_d1"] += gradient
        by_unit[row.unit] += gradient
    sums["nll_d1_squared"] = math.fsum(v * v for v in by_unit.values())
    sums["brier_d1_squared"] = math.fsum(v * v for v in brier_by_unit.values())
    return sums


def unit_counts(rows: list[Row], policy: str) -> list[int]:
    """Labelled predictions; units with weight, those with a correct rating, those with an incorrect one."""
    units: list[set[int]] = [set(), set(), set()]
    for row in rows:
        if row.weight > 0:
            units[0].add(row.unit)
            for k in range(len(row.p)):
                if row.share(k, policy):
                    units[1 if k == row.top else 2].add(row.unit)
    return [len(rows), *map(len, units)]


def scaled(rows: list[Row], beta: float) -> list[Row]:
    """The rows with probabilities at inverse temperature beta."""
    result = []
    for row in rows:
        top = max(row.log_p)
        powers = [math.exp(beta * (v - top)) for v in row.log_p]
        total = math.fsum(powers)
        result.append(
            Row(
                [v / total for v in powers],
                [],
                row.ratings,
                row.weight,
                row.unit,
                row.replicate,
                row.single,
            )
        )
    return result


def unit_sums(batch: Batch) -> dict[str, np.ndarray]:
    """Sixty bins in which every unit has weight one: by predictions, and by ratings for the pooled columns."""
    binary = batch.task == "binary"
    rows = rows_of(batch)
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(60))
    hashes = (
        batch.unit_hash.tolist() if batch.unit_source in ("unit", "case") else list(range(batch.n))
    )
    for i in range(batch.n):
        p = softmax(batch.scores[i])[0] if batch.is_logits else batch.scores[i].tolist()
        at = bin_of(p[1] if binary else max(p), 60, "right")
        sums["predictions"][at] += 1
        sums["occupancy"][at] += 1.0 / hashes.count(hashes[i])
    size: dict[int, int] = defaultdict(int)
    ratings: dict[int, int] = defaultdict(int)
    for row in rows:
        size[row.unit] += 1
        ratings[row.unit] += row.n_ratings
    shared: dict[tuple[str, int, int], float] = defaultdict(float)
    for row in rows:
        k = 1 if binary else row.top
        at = bin_of(row.p[k], 60, "right")
        sums["labelled"][at] += 1
        for suffix, omega in (
            ("", 1 / size[row.unit]),
            ("_pooled", row.n_ratings / ratings[row.unit]),
        ):
            sums["weight" + suffix][at] += omega
            sums["confidence" + suffix][at] += omega * row.p[k]
            shared[suffix, row.unit, at] += omega
        for policy in ("mean", "majority", "single"):
            sums[f"correct_{policy}"][at] += row.share(k, policy) / size[row.unit]
        sums["correct_pooled"][at] += row.ratings[k] / ratings[row.unit]
    for (suffix, _, at), omega in shared.items():
        sums["weight_squared" + suffix][at] += omega**2
    return sums


def equal_mass_cuts(
    values: list[tuple[float, float]], n_bins: int
) -> list[list[tuple[float, float]]]:
    """Groups of (score, weight), ties together, cut where the running weight reaches j / n_bins."""
    groups: list[list[tuple[float, float]]] = []
    weights = {s: sum((Fraction(w) for t, w in values if t == s), Fraction(0)) for s, _ in values}
    total, before, place = sum(weights.values()), Fraction(0), -1
    for score in sorted(weights):
        reached = math.floor(before * n_bins / total)
        if reached > place:
            groups.append([])
            place = reached
        groups[-1].append((score, float(weights[score])))
        before += weights[score]
    return groups


def as_array(sums: dict[str, float], names: tuple[str, ...]) -> Any:
    return np.array([sums[name] for name in names])
