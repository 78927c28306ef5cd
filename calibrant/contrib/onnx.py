"""Calibration maps as ONNX: written as a graph of standard operators, and read back.

    promoted = cal.Client(url, key).model("triage").map().map
    onnx.save(to_onnx(promoted, n_classes=3), "map.onnx")
    onnx.save(append_map(onnx.load("classifier.onnx"), promoted), "calibrated.onnx")

The graph computes in float64, as the library does, and casts at its ends. The map is also in the metadata of the file, so that
`from_onnx` returns it exactly. Operators are those of opset 13, whose meaning later opsets have not changed.
"""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

from calibrant.calibrators.map_method import digest
from calibrant.calibrators.map_method import map_methods as methods
from calibrant.contrib.extras import missing
from calibrant.contrib.onnx_formulas import FORMULAS, Graph, both_columns, class_index, mapped
from calibrant.core.errors import CalibrationInputError
from calibrant.results import CalibrationMap

try:
    import onnx
    from onnx import TensorProto, compose, helper
except ModuleNotFoundError as error:
    raise missing(error, "onnx") from error

METADATA = "calibrant.map"
SAVED = ("method", "scope", "class", "input", "parameters")
MIN_OPSET, OPSET = 13, 17
IR_VERSION = 8  # the first with opset 17: older runtimes read it
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
INPUT, OUTPUT = "scores", "recalibrated"


def to_onnx(
    map_: Any,
    n_classes: int,
    *,
    is_logits: bool = False,
    n_columns: int | None = None,
    dtype: str = "float32",
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Return a map as an ONNX model with the input `scores` and the output `recalibrated`.

    Parameters
    ----------
    map_ : CalibrationMap, or `client.model(name).map()`, whose current map is written
    n_classes : of the model
    is_logits : whether the input is logits
    n_columns : columns of the input. Default: `n_classes`. 1: P(class 1) of two, or its log odds
    dtype : of input and output, "float32" or "float64"
    opset : at least 13

    Returns
    -------
    The input is (n, n_columns). The output is (n, n_classes) of a map of scope `full`; (n, 1) of scope `positive`, `class` or
    `top_label`, the recalibrated probability of that class.

    Raises
    ------
    CalibrationInputError
        There is no map, or it does not fit `n_classes`.
    """
    values = _values(map_)
    columns = n_classes if n_columns is None else n_columns
    _check(values, n_classes, columns, dtype, opset)
    graph = Graph()
    scores = graph.node("Cast", INPUT, to=TensorProto.DOUBLE)
    if columns == 1:
        scores = both_columns(graph, scores, is_logits)
    recalibrated = mapped(graph, values, scores, is_logits)
    graph.node("Cast", recalibrated, to=TYPES[dtype], output=OUTPUT)
    width = n_classes if values["scope"] == "full" else 1
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "calibration_map",
            [helper.make_tensor_value_info(INPUT, TYPES[dtype], ["n", columns])],
            [helper.make_tensor_value_info(OUTPUT, TYPES[dtype], ["n", width])],
            graph.constants,
        ),
        producer_name="calibrant",
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(made, {METADATA: json.dumps(_saved(values), allow_nan=False)})
    onnx.checker.check_model(made)
    return made


def from_onnx(model: onnx.ModelProto | bytes | str | PathLike[str]) -> CalibrationMap:
    """Return the map in the metadata of a model, or of a file, that `to_onnx` or `append_map` made.

    Raises
    ------
    CalibrationInputError
        It has no map, or its parameters are not those of its digest.
    """
    if isinstance(model, bytes):
        model = onnx.load_from_string(model)
    elif not isinstance(model, onnx.ModelProto):
        model = onnx.load(model)
    texts = {each.key: each.value for each in model.metadata_props}
    if METADATA not in texts:
        detail = f"Received a model without metadata {METADATA}; expected one that `to_onnx` made."
        raise CalibrationInputError.at("/metadata_props", "missing", detail)
    values = json.loads(texts[METADATA])
    if values["digest"] != digest(values):
        detail = "Received parameters of another digest; write the map again."
        raise CalibrationInputError.at("/metadata_props", "digest", detail)
    return CalibrationMap.from_dict(values)


def append_map(
    model: onnx.ModelProto, map_: Any, *, output: str | None = None, is_logits: bool = False
) -> onnx.ModelProto:
    """Return a classifier whose scores pass through a map; its other outputs stay.

    Parameters
    ----------
    model : classifier of opset 13 or later
    map_ : as in `to_onnx`
    output : the output with the scores, (n, columns). Default: the only one
    is_logits : whether these are logits

    Raises
    ------
    CalibrationInputError
        The output is missing, or not of floats with a known number of columns.
    """
    outputs = {each.name: each.type.tensor_type for each in model.graph.output}
    name = next(iter(outputs)) if output is None and len(outputs) == 1 else output
    if name not in outputs:
        detail = f"Received outputs {', '.join(outputs)[:200]}; expected `output` to be one."
        raise CalibrationInputError.at("/output", "one_of", detail)
    kind = outputs[name]
    dims = [each.dim_value for each in kind.shape.dim]
    dtypes = {number: text for text, number in TYPES.items()}
    if len(dims) != 2 or not dims[1] or kind.elem_type not in dtypes:
        detail = (
            f"Received output {name} of shape {dims}; expected (n, columns) of float32 or float64."
        )
        raise CalibrationInputError.at("/output", "shape", detail)
    opset = max(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    made = to_onnx(
        map_,
        max(dims[1], 2),
        is_logits=is_logits,
        n_columns=dims[1],
        dtype=dtypes[kind.elem_type],
        opset=opset,
    )
    made.ir_version = model.ir_version
    joined: onnx.ModelProto = compose.merge_models(
        model, compose.add_prefix(made, "calibrant/"), io_map=[(name, f"calibrant/{INPUT}")]
    )
    props = {each.key: each.value for each in (*model.metadata_props, *made.metadata_props)}
    del joined.metadata_props[:]
    helper.set_model_props(joined, props)
    return joined


def _values(map_: Any) -> dict[str, Any]:
    current = map_ if hasattr(map_, "to_dict") else getattr(map_, "map", None)
    if current is None or current.to_dict().get("parameters") is None:
        detail = "Received a map without parameters; promote or fit one."
        raise CalibrationInputError.at("/parameters", "not_fitted", detail)
    values: dict[str, Any] = current.to_dict()
    return values


def _saved(values: dict[str, Any]) -> dict[str, Any]:
    saved = {name: values.get(name) for name in SAVED}
    saved["input"] = saved["input"] or methods()[str(saved["method"])].input
    versions = {name: values[name] for name in ("version",) if values.get(name) is not None}
    return saved | versions | {"digest": digest(saved)}


def _check(values: dict[str, Any], n_classes: int, columns: int, dtype: str, opset: int) -> None:
    method = methods().get(str(values.get("method")))
    if method is None or values.get("scope") not in method.scopes:
        detail = f"Received method {values.get('method')} with scope {values.get('scope')}."
        raise CalibrationInputError.at("/scope", "one_of", detail)
    if method.slug not in FORMULAS:
        detail = f"Received method {method.slug}; expected one of {', '.join(FORMULAS)}."
        raise CalibrationInputError.at("/method", "one_of", detail)
    if dtype not in TYPES:
        raise CalibrationInputError.at("/dtype", "one_of", "Expected float32 or float64.")
    if opset < MIN_OPSET:
        detail = f"Received opset {opset}; expected {MIN_OPSET} or later."
        raise CalibrationInputError.at("/opset", "range", detail)
    if columns not in ((1, 2) if n_classes == 2 else (n_classes,)):
        detail = f"Received {columns} columns; expected {n_classes}, or 1 with two classes."
        raise CalibrationInputError.at("/n_columns", "shape", detail)
    parameters = values["parameters"]
    lists = (parameters.get(name) for name in ("slopes", "temperatures", "intercepts", "classes"))
    sizes = {len(each) for each in lists if isinstance(each, list)} or {n_classes}
    needs_two = values["scope"] == "positive" and n_classes != 2
    if sizes != {n_classes} or needs_two or class_index(values) >= n_classes:
        detail = f"Received {n_classes} classes for a map of other classes: {values['scope']}."
        raise CalibrationInputError.at("/n_classes", "n_classes", detail)
