"""Specification of a model's panes: fixed at creation, because only panes of equal specification merge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from calibrant.core.errors import CalibrationInputError, check_one_of
from calibrant.core.grid import Grid, class_cells, grid_of

MAX_CLASSES = 10_000
MAX_CLASS_TABLES = 64
MAX_COMPOSITES = 16
TASKS = ("binary", "multiclass", "segmentation")


@dataclass(frozen=True)
class PaneSpec:
    """Task, classes and grid of a model's panes.

    Parameters
    ----------
    task : "binary", "multiclass" or "segmentation"
    n_classes : int, at least 2; 2 for binary
    grid : int, cells of the top-label and positive-class grid
    listed_classes : classes whose class-wise cells are stored. Default: all if n_classes is at most 64, else none.
    composites : names with the classes of which each is the union; tables of cases store them besides the classes

    Raises
    ------
    CalibrationInputError
        A value outside its range.
    """

    task: str
    n_classes: int
    grid: int = 3600
    listed_classes: tuple[int, ...] | None = None
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        check_one_of("task", self.task, TASKS)
        if not 2 <= self.n_classes <= MAX_CLASSES or (
            self.task == "binary" and self.n_classes != 2
        ):
            detail = (
                f"Received {self.n_classes} classes; a binary model has 2, others have 2 to 10000."
            )
            raise CalibrationInputError.at("/classes", "n_classes", detail)
        if not 2 <= self.grid <= 16384:
            detail = f"Received a grid of {self.grid} cells; expected 2 to 16384."
            raise CalibrationInputError.at("/grid", "range", detail)
        if self.listed_classes is not None:
            object.__setattr__(self, "listed_classes", tuple(sorted(set(self.listed_classes))))
        listed = self.listed_classes or ()
        if len(listed) > MAX_CLASS_TABLES or any(not 0 <= k < self.n_classes for k in listed):
            detail = f"Received other listed classes; expected at most {MAX_CLASS_TABLES}, each from 0 to {self.n_classes - 1}."
            raise CalibrationInputError.at("/listed_classes", "class_range", detail)
        # Panes merge if their composites are equal, in whatever order they were declared.
        unions = tuple(sorted((name, tuple(sorted(set(each)))) for name, each in self.composites))
        object.__setattr__(self, "composites", unions)
        self._check_composites()

    def _check_composites(self) -> None:
        if len(self.composites) > MAX_COMPOSITES or len(dict(self.composites)) < len(
            self.composites
        ):
            detail = f"Received {len(self.composites)} composites; expected at most {MAX_COMPOSITES} of different names."
            raise CalibrationInputError.at("/composites", "range", detail)
        for name, members in self.composites:
            if not name or not members or any(not 0 <= k < self.n_classes for k in members):
                detail = f"Received another composite; expected a name and classes, each from 0 to {self.n_classes - 1}."
                raise CalibrationInputError.at(f"/composites/{name}", "class_range", detail)
        if self.composites and not self.keeps_all_classes:
            detail = (
                "Received composites for a model that does not store every class; leave them out."
            )
            raise CalibrationInputError.at("/composites", "class_not_kept", detail)

    @property
    def stored_classes(self) -> tuple[int, ...]:
        """Classes with class-wise cells."""
        if self.listed_classes is not None:
            return self.listed_classes
        return tuple(range(self.n_classes)) if self.n_classes <= MAX_CLASS_TABLES else ()

    @property
    def keeps_all_classes(self) -> bool:
        """Whether every class has a separate table."""
        return len(self.stored_classes) == self.n_classes

    @property
    def default_scope(self) -> str:
        """Scope of the scores: `positive` for binary models, else `top_label`."""
        return "positive" if self.task == "binary" else "top_label"

    @property
    def top_grid(self) -> Grid:
        """Grid of the scores of the scopes `top_label` and `positive`."""
        return grid_of(self.grid)

    @property
    def class_grid(self) -> Grid:
        """Grid of the scores of single classes."""
        return grid_of(max(2, class_cells(self.grid)))

    def grid_for(self, scope: str) -> Grid:
        """Return the grid of a scope's scores."""
        return self.top_grid if scope in ("top_label", "positive") else self.class_grid

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        listed = None if self.listed_classes is None else list(self.listed_classes)
        values: dict[str, Any] = {
            "task": self.task,
            "n_classes": self.n_classes,
            "grid": self.grid,
            "listed_classes": listed,
        }
        # Specifications without composites keep the digest that they had before there were any.
        if self.composites:
            values["composites"] = [[name, list(members)] for name, members in self.composites]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PaneSpec:
        """Return the specification that `to_dict` described.

        Raises
        ------
        TypeError
            A value of another type than `to_dict` gives.
        """
        listed = values.get("listed_classes")
        composites = tuple((str(name), tuple(each)) for name, each in values.get("composites", ()))
        members = [k for _, each in composites for k in each]
        numbers = [values["n_classes"], values["grid"], *(listed or []), *members]
        if any(type(number) is not int for number in numbers):
            raise TypeError("classes and cells are whole numbers")
        classes = None if listed is None else tuple(listed)
        return cls(str(values["task"]), values["n_classes"], values["grid"], classes, composites)

    @cached_property
    def digest(self) -> str:
        """Hash of the specification, 16 hexadecimal digits."""
        text = json.dumps(self.to_dict(), sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=8).hexdigest()
