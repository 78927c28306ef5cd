"""Losses of raw rows at an inverse temperature, with their slopes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import Rows

Floats = NDArray[np.float64]


def spread(part: Rows, beta: float) -> tuple[Floats, Floats, Floats]:
    """Normaliser, mean and variance of z under softmax(beta z), by row."""
    power = np.exp(beta * part.zed)
    total = power.sum(axis=0)
    mean = np.einsum("kn,kn->n", power, part.finite) / total
    centred = part.finite - mean
    return total, mean, np.einsum("kn,kn,kn->n", power, centred, centred) / total


def nll(part: Rows, policy: int, beta: float) -> tuple[float, float, float]:
    """Sum of NLL and its two derivatives in beta."""
    total, mean, variance = spread(part, beta)
    weight = part.by_row(part.weight[policy : policy + 1])[0]
    zed = float(part.weight[policy] @ part.entry_zed)
    return (
        float(weight @ np.log(total)) - beta * zed,
        float(weight @ mean) - zed,
        float(weight @ variance),
    )


def nll_slopes(part: Rows, policy: int, beta: float) -> Floats:
    mean = spread(part, beta)[1]
    weight, zed = part.by_row(np.stack([part.weight[policy], part.weight[policy] * part.entry_zed]))
    return np.asarray(weight * mean - zed)


def brier_parts(part: Rows, policy: int, beta: float) -> tuple[Floats, Floats]:
    """Brier and its derivative in beta, by row."""
    power = np.exp(beta * part.zed)
    total = power.sum(axis=0)
    mean = np.einsum("kn,kn->n", power, part.finite) / total
    squares = np.einsum("kn,kn->n", power, power) / total**2
    squares_zed = np.einsum("kn,kn,kn->n", power, power, part.finite) / total**2
    entry = np.exp(beta * part.entry_zed) / total[part.row]
    entry[(part.weight_all > part.weight).any(axis=0)] = 0.0
    weight_all = part.weight_all[policy]
    columns = np.stack(
        [weight_all, weight_all * entry, weight_all * entry * (part.entry_zed - mean[part.row])]
    )
    weight, chosen, slope = part.by_row(columns)
    value = weight * (1.0 + squares) - 2.0 * chosen
    return value, 2.0 * (weight * (squares_zed - squares * mean) - slope)


def brier(part: Rows, policy: int, beta: float) -> tuple[float, float]:
    value, slope = brier_parts(part, policy, beta)
    return float(value.sum()), float(slope.sum())


def brier_slopes(part: Rows, policy: int, beta: float) -> Floats:
    return brier_parts(part, policy, beta)[1]
