"""Formulas of calibration maps as operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from calibrant.contrib.extras import missing

try:
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError as error:
    raise missing(error, "onnx") from error

Parameters = Mapping[str, Any]
Formula = Callable[["Graph", Parameters, str], str]


class Graph:
    """Nodes and constants of a graph in the making."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """Add a constant; return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(
        self, operator: str, *inputs: str, output: str | None = None, **attributes: Any
    ) -> str:
        """Add an operator with one output; return its name."""
        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def column(self, values: str, index: int) -> str:
        """Return a column of a matrix, (n, 1)."""
        return self.node("Gather", values, self.constant([index], np.int64), axis=1)

    def clipped(self, values: str, low: Any, high: Any) -> str:
        """Return values between two constants."""
        above = self.node("Max", values, self.constant(low))
        return self.node("Min", above, self.constant(high))

    def concatenated(self, *columns: str) -> str:
        """Return columns as one matrix."""
        return self.node("Concat", *columns, axis=1)

    def logistic(self, odds: str) -> str:
        """Return 1 / (1 + exp(-odds)) of a column."""
        zero = self.node("Sub", odds, odds)
        return self.column(self.node("Softmax", self.concatenated(zero, odds), axis=1), 1)


def class_index(values: Mapping[str, Any]) -> int:
    """Return the class of a map of scope `class`, else 0."""
    return int(values.get("class") or 0) if values["scope"] == "class" else 0


def both_columns(graph: Graph, scores: str, is_logits: bool) -> str:
    """Return scores of both classes from those of class 1."""
    zero = graph.node("Sub", scores, scores)
    other = zero if is_logits else graph.node("Sub", graph.constant([[1.0]]), scores)
    return graph.concatenated(other, scores)


def mapped(graph: Graph, values: dict[str, Any], scores: str, is_logits: bool) -> str:
    """Return the output of the map: all classes, or the column of one."""
    method, scope, parameters = values["method"], values["scope"], values["parameters"]
    if method in ROWS:
        # Minus infinity at a probability of 0.
        logarithms = (
            graph.node("LogSoftmax", scores, axis=1) if is_logits else graph.node("Log", scores)
        )
        rows = graph.node("Softmax", ROWS[method](graph, parameters, logarithms), axis=1)
        return rows if scope == "full" else graph.column(rows, 1)
    probabilities = graph.node("Softmax", scores, axis=1) if is_logits else scores
    if "classes" in parameters:
        return _classes(graph, SCORES[method], parameters["classes"], probabilities)
    if scope == "top_label":
        score, one = "largest", graph.constant([1], np.int64)
        graph.nodes.append(helper.make_node("TopK", [probabilities, one], [score, "place"], axis=1))
    else:
        score = graph.column(probabilities, 1 if scope == "positive" else class_index(values))
    return SCORES[method](graph, parameters, score)


def _classes(graph: Graph, formula: Formula, maps: list[Any], probabilities: str) -> str:
    """Return each class mapped against the rest, divided by the sum of the row; rows of zeros are uniform."""
    columns = [graph.column(probabilities, k) for k in range(len(maps))]
    mapped = graph.concatenated(
        *(
            column if own is None else formula(graph, own, column)
            for own, column in zip(maps, columns, strict=True)
        )
    )
    total = graph.node("ReduceSum", mapped, graph.constant([1], np.int64), keepdims=1)
    is_zero = graph.node("Equal", total, graph.constant(0.0))
    ones = graph.node("Add", graph.node("Sub", mapped, mapped), graph.constant(1.0 / len(maps)))
    divisor = graph.node("Where", is_zero, graph.constant(1.0), total)
    return graph.node("Where", is_zero, ones, graph.node("Div", mapped, divisor))


def _temperature(graph: Graph, parameters: Parameters, logarithms: str) -> str:
    return graph.node("Div", logarithms, graph.constant(parameters["temperature"]))


def _clipped_logarithms(graph: Graph, parameters: Parameters, logarithms: str) -> str:
    return graph.node("Max", logarithms, graph.constant(np.log(parameters["clip"])))


def _vector(graph: Graph, parameters: Parameters, logarithms: str) -> str:
    clipped = _clipped_logarithms(graph, parameters, logarithms)
    scaled = graph.node("Mul", clipped, graph.constant(parameters["slopes"]))
    return graph.node("Add", scaled, graph.constant(parameters["intercepts"]))


def _class_temperature(graph: Graph, parameters: Parameters, logarithms: str) -> str:
    clipped = _clipped_logarithms(graph, parameters, logarithms)
    return graph.node("Div", clipped, graph.constant(parameters["temperatures"]))


def _dirichlet(graph: Graph, parameters: Parameters, logarithms: str) -> str:
    clipped = _clipped_logarithms(graph, parameters, logarithms)
    mixed = graph.node("MatMul", clipped, graph.constant(np.transpose(parameters["matrix"])))
    return graph.node("Add", mixed, graph.constant(parameters["intercepts"]))


def _log_pair(graph: Graph, parameters: Parameters, score: str) -> tuple[str, str]:
    """Return ln p and ln(1 - p) of clipped scores."""
    clip = parameters["clip"]
    clipped = graph.clipped(score, clip, 1.0 - clip)
    other = graph.node("Sub", graph.constant(1.0), clipped)
    return graph.node("Log", clipped), graph.node("Log", other)


def _platt(graph: Graph, parameters: Parameters, score: str) -> str:
    odds = graph.node("Sub", *_log_pair(graph, parameters, score))
    scaled = graph.node("Mul", odds, graph.constant(parameters["slope"]))
    return graph.logistic(graph.node("Add", scaled, graph.constant(parameters["intercept"])))


def _beta(graph: Graph, parameters: Parameters, score: str) -> str:
    own, other = _log_pair(graph, parameters, score)
    rising = graph.node("Mul", own, graph.constant(parameters["a"]))
    falling = graph.node("Mul", other, graph.constant(parameters["b"]))
    odds = graph.node("Sub", rising, falling)
    return graph.logistic(graph.node("Add", odds, graph.constant(parameters["c"])))


def _polygon(graph: Graph, parameters: Parameters, score: str) -> str:
    """Return the polygon as first value plus, for each piece, its slope times the covered part of its length."""
    x, y = (np.asarray(parameters[name], np.float64) for name in ("x", "y"))
    if len(x) == 1:
        x, y = np.append(x, x + 1.0), np.append(y, y)
    covered = graph.clipped(graph.node("Sub", score, graph.constant(x[:-1])), 0.0, np.diff(x))
    rises = graph.constant((np.diff(y) / np.diff(x))[:, None])
    return graph.node("Add", graph.node("MatMul", covered, rises), graph.constant(y[0]))


def _bins(graph: Graph, parameters: Parameters, score: str) -> str:
    """Return the value of the bin (a, b]: its number is that of the inner edges below the score."""
    if len(parameters["values"]) == 1:
        nothing = graph.node("Sub", score, score)
        return graph.node("Add", nothing, graph.constant(parameters["values"]))
    below = graph.node("Less", graph.constant(parameters["edges"][1:-1]), score)
    counted = graph.node("Cast", below, to=TensorProto.INT64)
    place = graph.node("ReduceSum", counted, graph.constant([1], np.int64), keepdims=1)
    return graph.node("Gather", graph.constant(parameters["values"]), place, axis=0)


# Formulas of log-probabilities, before the softmax; and of one probability.
ROWS: dict[str, Formula] = {
    "temperature": _temperature,
    "vector": _vector,
    "class_temperature": _class_temperature,
    "dirichlet": _dirichlet,
}
SCORES: dict[str, Formula] = {
    "platt": _platt,
    "beta": _beta,
    "isotonic": _polygon,
    "spline": _polygon,
    "histogram": _bins,
    "scaling_binning": _bins,
}
FORMULAS = (*ROWS, *SCORES)
