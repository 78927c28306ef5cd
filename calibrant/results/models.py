"""Scopes and classes of a model, as a request names them."""

from __future__ import annotations

from typing import Protocol

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.spec import PaneSpec


class Classes(Protocol):
    """The classes of a model."""

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes, if they have any."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""


class Model(Classes, Protocol):
    """The model of a window."""

    def spec(self) -> PaneSpec:
        """Return the specification of its panes."""


def bins_of(model: Model, scope: str | None) -> int:
    """Return the default number of bins: 15, or the nearest that the model's grid gives exactly."""
    known = scope in ("top_label", "positive", "all") or (scope or "").startswith("class:")
    return default_bins(model.spec(), scope if known else None)


def scope_by_index(scope: str | None, model: Classes) -> str | None:
    """Return the scope with its class named by index."""
    if scope is None or not scope.startswith("class:"):
        return scope
    return f"class:{class_index(scope.removeprefix('class:'), model, '/scope')}"


def scope_of(scope: str | None, model: Model) -> str:
    """Return the requested scope, or the model's own."""
    return PaneQuery(scope=scope_by_index(scope, model)).scope_for(model.spec())


def class_index(name: str, model: Classes, pointer: str) -> int:
    """Return the index of the class with this name, or this index.

    Raises
    ------
    CalibrationInputError
        The model has no such class.
    """
    if model.classes and name in model.classes:
        return model.classes.index(name)
    if name.isascii() and name.isdigit() and len(name) < 9 and int(name) < model.n_classes:
        return int(name)
    known = ", ".join(model.classes[:50]) if model.classes else f"0 to {model.n_classes - 1}"
    detail = f"Received class {name!r}; expected one of the model: {known}."
    raise CalibrationInputError.at(pointer, "unknown_class", detail)
