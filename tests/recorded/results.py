"""Results of the library on seeded rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import calibrant as cal
from tests.recorded.data import clinic, confidences, drawn, drawn_binary, probabilities
from tests.recorded.exchanges import Exchange
from tests.recorded.masks import masked

RESULTS = "library"
METHODS = ("temperature", "platt", "beta", "isotonic", "histogram", "spline", "scaling_binning")
FULL = ("temperature", "vector", "dirichlet", "class_temperature")


def library_results() -> list[Exchange]:
    """Return the results, each in the form of an exchange."""
    return [_exchange(name, compute) for name, compute in _calls()]


def _exchange(name: str, compute: Callable[[], Any]) -> Exchange:
    try:
        body = _plain(compute())
    except ValueError as error:
        body = {"error": str(error)}
    return masked({"request": f"library {name}", "body": body})


def _calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from _of_classes(probabilities(300, 200), drawn(300, probabilities(300, 200)))
    yield from _of_binary(confidences(301, 250), drawn_binary(301, confidences(301, 250), 0.05))
    yield from _of_panes()


def _of_classes(rows: Any, labels: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "evaluate", lambda: cal.evaluate(rows, labels)
    for binning in ("equal_width", "equal_mass"):
        for bins in (5, 15):
            yield (
                f"evaluate {binning} {bins}",
                lambda a=binning, b=bins: cal.evaluate(rows, labels, bins=b, binning=a),
            )
            yield (
                f"reliability {binning} {bins}",
                lambda a=binning, b=bins: cal.reliability(rows, labels, bins=b, binning=a),
            )
    for objective in ("nll", "brier", "ece"):
        yield (
            f"fit_temperature {objective}",
            lambda a=objective: cal.fit_temperature(rows, labels, objective=a),
        )
    for method in FULL:
        yield f"fit_map {method}", lambda a=method: cal.fit_map(rows, labels, method=a)
    for metric in sorted(cal.metrics.METRICS):
        yield f"evaluate {metric}", lambda a=metric: cal.evaluate(rows, labels, metrics=[a])


def _of_binary(values: Any, labels: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "evaluate binary", lambda: cal.evaluate(values, labels)
    yield "reliability binary", lambda: cal.reliability(values, labels, bins=8)
    for method in METHODS:
        yield f"fit_map binary {method}", lambda a=method: cal.fit_map(values, labels, method=a)


def _of_panes() -> Iterator[tuple[str, Callable[[], Any]]]:
    columns = clinic(302, 80)
    filled = cal.Pane.fill(columns["probabilities"], columns["labels"], units=columns["units"])
    other = cal.Pane.fill(probabilities(303, 30), drawn(303, probabilities(303, 30)))
    for name, make in (
        ("filled", lambda: filled),
        ("merged", lambda: filled + other),
        ("subtracted", lambda: filled + other - other),
        ("unpacked", lambda: cal.Pane.from_bytes(filled.to_bytes())),
    ):
        yield f"pane {name}", lambda a=make: str(a())
        yield f"pane {name} evaluate", lambda a=make: a().evaluate()
        for policy in ("mean", "majority", "single"):
            yield f"pane {name} evaluate {policy}", lambda a=make, b=policy: a().evaluate(raters=b)


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return _number(value)


def _number(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    is_finite = not isinstance(value, float) or np.isfinite(value)
    return (
        value
        if is_finite and isinstance(value, (bool, int, float, str, type(None)))
        else str(value)
    )
