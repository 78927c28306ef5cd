"""Requested metrics of a model, and the parameters that they take."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.input.class_labels import names_of_classes
from calibrant.metrics import MetricRequest, requested
from calibrant.metrics.requests import BIN_EDGES, SHARED, reject_without_effect, takes
from calibrant.results.models import Model, bins_of, scope_by_index, scope_of
from calibrant.segmentation.case_options import MEMBERSHIP


def requests_in(
    text: str, model: Model, pointer: str = "/metrics", shared: Collection[str] = ()
) -> list[MetricRequest]:
    """Read requested metrics; a class in a scope is named by its index from here on.

    Raises
    ------
    CalibrationInputError
        A metric or an option is unknown, or the model does not support it.
    """
    found = []
    for each in requested(text, pointer, shared):
        scope = dict(each.options).get("scope")
        if scope is not None:
            each = each.with_option("scope", scope_of(str(scope), model))
        if each.options:
            each.pane_query(PaneQuery(bins=bins_of(model, None))).check(model.spec())
        found.append(each)
    return found


@dataclass(frozen=True)
class _Named:
    """The classes of a call."""

    classes: list[str]

    @property
    def n_classes(self) -> int:
        return len(self.classes)


def scopes_by_index(
    scope: str | None, slugs: Iterable[str], classes: Any
) -> tuple[str | None, list[str]]:
    """Return a scope and requested metrics with the classes of their scopes by index, where `classes` names them.

    Raises
    ------
    CalibrationInputError
        A class that is not among them, or names that classes cannot have.

    Examples
    --------
    >>> scopes_by_index("class:dog", ["ece", "auc(scope=class:cat)"], ["cat", "dog"])
    ('class:1', ['ece', 'auc(scope=class:0)'])
    """
    slugs = list(slugs)
    names = names_of_classes(classes) if "class:" in f"{scope}{slugs}" else None
    if names is None:
        return scope, slugs
    named = _Named([str(name) for name in names])
    found = []
    for each in requested(slugs):
        own = dict(each.options).get("scope")
        index = None if own is None else scope_by_index(str(own), named)
        found.append(each if index is None else each.with_option("scope", index))
    return scope_by_index(scope, named), [each.key for each in found]


def reject_untaken(
    query: Any, given: Collection[str], requests: list[MetricRequest], pointer: str
) -> None:
    """Reject a shared parameter that none of the requested metrics takes, and options without effect.

    Parameters
    ----------
    given : names of the parameters that the request has
    pointer : of the requested metrics

    Raises
    ------
    CalibrationInputError
        The parameter, with what those metrics take.
    """
    binning = getattr(query, "binning", "equal_width")
    for each in requests:
        reject_without_effect(each, binning, pointer)
    for name in set(given) & {*SHARED, BIN_EDGES}:
        value = getattr(query, name)
        if value is None or any(_takes(each, name, value, binning) for each in requests):
            continue
        taken = sorted(
            {other for each in requests for other in SHARED if takes(each.metric, other)}
        )
        detail = f"Received {name}={value}, which none of the requested metrics takes; they take {', '.join(taken)}."
        raise CalibrationInputError.at(f"/{name}", "not_taken", detail)


def _takes(request: MetricRequest, name: str, value: object, binning: str) -> bool:
    if name == "edges" and request.binning(binning) == "equal_mass":
        return False
    if name == "binning" and value in MEMBERSHIP.allowed:
        return MEMBERSHIP in request.metric.own_options
    return takes(request.metric, name)
