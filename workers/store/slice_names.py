"""Names of the slices of stored panes: those that batches fill, sealed cohorts and baselines."""

from __future__ import annotations

_SEALED = "sealed!"
_BASELINE = "baseline!"
REFERENCE = "reference"  # the baseline that is the past of its model


def sealed_slice(slice_: str) -> str:
    """Return the slice name of sealed cohorts; no client can use it."""
    return _SEALED + slice_


def baseline_slice(name: str) -> str:
    """Return the slice name of a baseline's pane."""
    return _BASELINE + name


def reference_days_slice() -> str:
    """Return the slice name of the days of the model's reference, one pane each."""
    return f"{_BASELINE}{REFERENCE}!days"


def is_sealed(slice_: str) -> bool:
    """Whether a slice holds the sealed cohorts of another."""
    return slice_.startswith(_SEALED)


def is_baseline(slice_: str) -> bool:
    """Whether a slice holds a baseline, which neither ages nor changes."""
    return slice_.startswith(_BASELINE)


def is_live(slice_: str) -> bool:
    """Whether batches fill a slice."""
    return not (is_sealed(slice_) or is_baseline(slice_))


def plain_slice(slice_: str) -> str:
    """Return the client's name of a slice."""
    return slice_.removeprefix(_SEALED)
