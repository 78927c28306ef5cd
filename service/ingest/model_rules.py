"""What a model demands of everything that is sent to it, beside what any batch must be."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from calibrant.core.batch import Checked
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.workers.store.registry import ModelConfig

SEGMENTATION = "segmentation"
PIXELS = (
    "pixels of one image are not independent: without units, intervals would be far too narrow and the alarm would "
    "go off over nothing"
)


def refuse_unitless(checked: Checked, config: ModelConfig) -> None:
    """Refuse a segmentation batch that does not say which pixels belong together."""
    if config.task == SEGMENTATION and checked.batch.unit_source not in ("unit", "case"):
        raise CalibrationInputError(
            [Violation("/units", "units_required", f"{PIXELS}; name units or cases, one a row")]
        )


def refuse_unitless_update(fields: Mapping[str, Any], config: ModelConfig, pointer: str) -> None:
    """Refuse a histogram that does not say how many independent units it counts, where the model demands it."""
    named = (fields.get("n_units"), fields.get("unit"), fields.get("case"))
    if (config.task == SEGMENTATION or config.unit) and all(each is None for each in named):
        why = (
            PIXELS
            if not config.unit
            else f"the model's unit is {config.unit}, and a histogram has no rows to count them by"
        )
        detail = f"{why}; name n_units, or the unit or case that it is of"
        raise CalibrationInputError([Violation(f"{pointer}/n_units", "units_required", detail)])


def refuse_undeclared(keys: Iterable[str], config: ModelConfig, pointer: str) -> None:
    """Refuse slice keys that the model does not declare; a model that declares none takes any."""
    if not config.slices:
        return
    known = ", ".join(sorted(config.slices))
    violations = [
        Violation(
            f"{pointer}/{key}",
            "undeclared_slice",
            f"the model declares the slices {known}; declare {key} as well, or leave it out",
        )
        for key in keys
        if key not in config.slices
    ]
    if violations:
        raise CalibrationInputError(violations)


def undeclared_value(key: str, value: str, config: ModelConfig, pointer: str) -> Violation | None:
    """Return the violation of a value that a slice with declared values does not have."""
    declared = config.slices.get(key)
    if declared is None or value in declared:
        return None
    some = ", ".join(declared[:50])
    return Violation(
        pointer, "undeclared_slice", f"{value[:50]!r} is no value of {key}; declared: {some}"
    )


def without_undeclared(checked: Checked, config: ModelConfig, partial: bool) -> Checked:
    """Return the rows whose slices the model has declared; another row is a violation."""
    slices = checked.batch.slices or {}
    refuse_undeclared(slices, config, "/slices")
    violations: list[Violation] = []
    good = np.ones(checked.batch.n, bool)
    for key, column in sorted(slices.items()):
        if config.slices.get(key) is None:
            continue
        for row, value in enumerate(column):
            pointer = f"/slices/{key}/{checked.accepted_rows[row]}"
            violation = undeclared_value(key, str(value), config, pointer)
            if violation is not None:
                good[row] = False
                violations.append(violation)
    if not violations:
        return checked
    if not partial:
        raise CalibrationInputError(violations)
    kept = np.flatnonzero(good)
    return Checked(
        checked.batch.take(kept), checked.violations + violations, checked.accepted_rows[kept]
    )


def refuse_undeclared_update(
    slices: Mapping[str, str] | None, config: ModelConfig, pointer: str
) -> None:
    """Refuse an update of a slice that the model has not declared."""
    refuse_undeclared(slices or {}, config, pointer)
    found = (
        undeclared_value(key, value, config, f"{pointer}/{key}")
        for key, value in sorted((slices or {}).items())
    )
    violations = [each for each in found if each is not None]
    if violations:
        raise CalibrationInputError(violations)
