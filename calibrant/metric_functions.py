"""One function per metric in `METRICS`: its signature has the options that the metric takes, and no others."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from calibrant.core.query import TIES, Bins, Option, PaneQuery
from calibrant.library_arguments import DATA, check_types
from calibrant.library_estimates import estimate_of
from calibrant.metrics import METRICS, Metric
from calibrant.metrics.estimate import Estimate
from calibrant.metrics.metric import BETTER
from calibrant.metrics.requests import BIN_EDGES, MetricRequest, reject_without_effect, takes

PANE_QUERY: dict[str, Any] = {
    "bins": int,
    "binning": str,
    "edges": str,
    "min_count": float,
    "scope": str | None,
}
DEFAULTS = {each.name: each.default for each in fields(PaneQuery)}


def signature_of(metric: Metric) -> inspect.Signature:
    """Return the signature of a metric's function: data by position or name, options by name, nothing else."""
    positional, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    data = [
        inspect.Parameter(name, positional if i < 2 else named, default=None)
        for i, name in enumerate(DATA)
    ]
    options = [
        (name, DEFAULTS[name], Bins if name == "bins" and takes(metric, BIN_EDGES) else kind)
        for name, kind in PANE_QUERY.items()
        if name in metric.options
    ]
    options += [(option.name, option.default, option.type) for option in metric.own_options]
    if "composites" in metric.options:
        options.append(("composites", None, dict | None))
    options += [("raters", DEFAULTS["raters"], str), ("ci", DEFAULTS["ci"], float)]
    requested = [
        inspect.Parameter(name, named, default=value, annotation=kind)
        for name, value, kind in options
    ]
    return inspect.Signature([*data[:2], *requested, *data[2:]], return_annotation=Estimate)


def function_of(metric: Metric) -> Callable[..., Estimate]:
    """Return the function that computes a metric of arrays."""
    signature = signature_of(metric)

    def compute(*args: Any, **kwargs: Any) -> Estimate:
        for name in kwargs:
            if name not in signature.parameters:
                options = [each for each in signature.parameters if each not in DATA]
                raise TypeError(
                    f"{metric.slug}() takes no argument {name!r}; its options are {', '.join(options)}"
                )
        bound = signature.bind(*args, **kwargs)
        check_types(bound.arguments)
        changed = [
            (name, value)
            for name, value in bound.arguments.items()
            if name in ("binning", "edges", TIES.name)
            and value != signature.parameters[name].default
        ]
        reject_without_effect(MetricRequest(metric, tuple(changed)), PaneQuery.binning, None)
        own = _own_options(metric, bound.arguments)
        bound.apply_defaults()
        found = estimate_of(metric.slug, bound.arguments)
        return replace(found, name=MetricRequest(metric, own).key)

    compute.__signature__ = signature  # type: ignore[attr-defined]
    compute.__name__ = compute.__qualname__ = metric.slug
    compute.__module__ = "calibrant"
    compute.__doc__ = docstring_of(metric)
    annotated = {
        each.name: each.annotation
        for each in signature.parameters.values()
        if each.annotation is not each.empty
    }
    compute.__annotations__ = annotated | {"return": Estimate}
    return compute


def _own_options(metric: Metric, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the metric's own options that differ from their defaults, which name another number."""
    read = {
        each.name: each.read(given[each.name])
        for each in metric.own_options
        if given.get(each.name) is not None
    }
    changed = [
        (each.name, read[each.name])
        for each in metric.own_options
        if read.get(each.name, each.default) != each.default
    ]
    return tuple(sorted(changed))


def docstring_of(metric: Metric) -> str:
    """Return the docstring of a metric's function, from what the metric declares."""
    low, high = ("unbounded" if bound is None else f"{bound:g}" for bound in metric.range)
    names = {option.name for option in metric.own_options}
    shared = [name for name in signature_of(metric).parameters if name not in names]
    lines = [
        f"Compute the {metric.title[0].lower() + metric.title[1:]}."
        if metric.title[1:2].islower()
        else f"Compute {metric.title}.",
        "",
        "Parameters",
        "----------",
        *(line for option in metric.own_options for line in _described(option)),
        f"{', '.join(shared)} : as in `evaluate`",
        "",
        "Returns",
        "-------",
        f"Estimate of unit {metric.unit}, from {low} to {high}; {BETTER[metric.direction]}",
        "",
        "Raises",
        "------",
        "CalibrationInputError",
        "    A value that is not allowed, with its argument, row and rule.",
        "",
        "Source",
        "------",
        metric.source,
        "",
        "Notes",
        "-----",
        *_notes(metric).splitlines(),
        *_other_names(metric),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _described(option: Option) -> list[str]:
    """Return the lines of an option: its values, its meaning and its default."""
    kind = option.type.__name__
    if option.allowed:
        kind = "one of " + ", ".join(repr(value) for value in option.allowed)
    elif option.low is not None or option.high is not None:
        low, high = (
            "open" if bound is None else f"{bound:g}" for bound in (option.low, option.high)
        )
        kind += f" in [{low}, {high}]"
    return [f"{option.name} : {kind}", f"    {option.description} Default: {option.default!r}."]


def _other_names(metric: Metric) -> list[str]:
    """Return the line of the names that papers have for the metric."""
    named = [f"{word} ({how})" if how else word for word, how in metric.search_words.items()]
    return ["", f"Also known as {', '.join(named)}."] if named else []


def _notes(metric: Metric) -> str:
    """Return the docstring of the module that defines a metric: its formula."""
    prefix = "calibrant.metrics."
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix):
            declared = getattr(module, "METRICS", None) or [getattr(module, "METRIC", None)]
            if any(each is metric for each in declared if isinstance(declared, list | tuple)):
                return inspect.cleandoc(module.__doc__ or "")
    return ""


FUNCTIONS: dict[str, Callable[..., Estimate]] = {
    slug: function_of(metric) for slug, metric in METRICS.items()
}
