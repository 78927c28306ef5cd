"""Which way probabilities err, in a sentence with the numbers that show it; nothing within chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from calibrant.core.documents import Result, Row

# Standard errors from which a mean gap is more than chance.
BEYOND = 2.0
PerCent = Callable[[float | None], str]


def direction(reliability: Result, per_cent: PerCent) -> str:
    """Return whether probabilities are too high or too low on average, or too extreme or too near one half.

    >>> def row(says, shown): return {"mean_confidence": says, "accuracy": shown, "gap": shown - says, "weight": 500.0, "n_effective": 500.0}
    >>> text = lambda share: f"{100 * share:.0f} %"
    >>> direction({"scope": "positive", "table": [row(0.3, 0.4), row(0.7, 0.8)]}, text)
    'Probabilities are too low on average: mean probability 50 %, observed frequency 60 %. '
    >>> direction({"scope": "positive", "table": [row(0.1, 0.2), row(0.9, 0.8)]}, text)
    'Probabilities are too extreme: below one half the mean is 10 % and the observed frequency 20 %; above it 90 % and 80 %. '
    >>> direction({"scope": "positive", "table": [row(0.3, 0.31), row(0.7, 0.7)]}, text)
    ''
    """
    rows = [row for row in reliability.get("table") or [] if row.get("gap") is not None]
    rows = [row | {"accuracy": row["mean_confidence"] + row["gap"]} for row in rows]
    if reliability.get("scope") in ("top_label", None):
        return _of_top_label(reliability, rows, per_cent)
    ones = [1.0] * len(rows)
    if not rows or _is_more_spread(rows) or not _is_beyond(rows, ones):
        return _spread(rows, per_cent)
    says, shown = (_mean(rows, name) for name in ("mean_confidence", "accuracy"))
    way = "high" if says > shown else "low"
    return f"Probabilities are too {way} on average: mean probability {per_cent(says)}, observed frequency {per_cent(shown)}. "


def _of_top_label(reliability: Result, rows: Sequence[Row], per_cent: PerCent) -> str:
    says, shown = reliability.get("mean_confidence"), reliability.get("accuracy")
    if says is None or shown is None or (rows and not _is_beyond(rows, [1.0] * len(rows))):
        return ""
    way = "Over" if says > shown else "Under"
    return (
        f"{way}confident on average: mean confidence {per_cent(says)}, accuracy {per_cent(shown)}. "
    )


def _spread(rows: Sequence[Row], per_cent: PerCent) -> str:
    """Return that probabilities are too extreme or too near one half, with the means of both halves."""
    sides = [[row for row in rows if (row["mean_confidence"] > 0.5) is above] for above in (False, True)]  # fmt: skip
    if not all(sides) or not _is_beyond(rows, _outward(rows)):
        return ""
    low, high = ([per_cent(_mean(side, name)) for name in ("mean_confidence", "accuracy")] for side in sides)  # fmt: skip
    way = "extreme" if _gap(rows, _outward(rows)) < 0 else "near one half"
    return (
        f"Probabilities are too {way}: below one half the mean is {low[0]} and the observed frequency {low[1]}; "
        f"above it {high[0]} and {high[1]}. "
    )


def _outward(rows: Sequence[Row]) -> list[float]:
    return [1.0 if row["mean_confidence"] > 0.5 else -1.0 for row in rows]


def _is_more_spread(rows: Sequence[Row]) -> bool:
    """Whether the gaps away from one half are more than twice the mean gap."""
    return abs(_gap(rows, _outward(rows))) > 2.0 * abs(_gap(rows, [1.0] * len(rows)))


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(sum(row["weight"] * row[name] for row in rows) / sum(row["weight"] for row in rows))  # fmt: skip


def _gap(rows: Sequence[Row], signs: Sequence[float]) -> float:
    total = sum(row["weight"] for row in rows)
    return float(sum(s * row["weight"] * row["gap"] for s, row in zip(signs, rows, strict=True)) / total)  # fmt: skip


def _is_beyond(rows: Sequence[Row], signs: Sequence[float]) -> bool:
    """Whether the mean signed gap exceeds chance; of a bin the variance is that of its mean score or of its labels, the larger one."""
    total = sum(row["weight"] for row in rows)
    variance = sum(
        (row["weight"] / total) ** 2
        * max(_chance(row["mean_confidence"]), _chance(row["accuracy"]))
        / max(row.get("n_effective") or row["weight"], 1e-9)
        for row in rows
    )
    return bool(abs(_gap(rows, signs)) > BEYOND * variance**0.5)


def _chance(share: float) -> float:
    return share * (1.0 - share)
