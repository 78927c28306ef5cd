"""Axes of PyTorch's predictions and targets."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import one_hot


def pixels(values: Any, dtype: Any) -> Any:
    """Return (images, classes, ...) as (images, classes, n_pixels)."""
    return values.flatten(2).to(dtype)


def shares(target: Any, like: Any) -> Any:
    """Return the target as (images, classes, n_pixels) of the type and device of `like`, (images, classes, n_pixels).

    Class indices (images, ...) become one-hot; shares (images, classes, ...) stay.
    """
    n_images, n_classes, n_pixels = like.shape
    if not target.is_floating_point():
        target = one_hot(target.reshape(n_images, -1).long(), n_classes).movedim(-1, 1)
    found = target.reshape(n_images, n_classes, -1).to(like)
    if found.shape[2] != n_pixels:
        raise ValueError(
            f"Received a target of {found.shape[2]} pixels per image; expected {n_pixels}."
        )
    return found


def float64_of(values: Any) -> Any:
    """Return the type to compute in: float64, or float32 on devices without it."""
    return torch.float32 if values.device.type == "mps" else torch.float64
