"""Maps as ONNX: onnxruntime computes what the library computes, and a file gives the same map back."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

onnx = pytest.importorskip("onnx", reason="onnx is installed by `make test-adapters`")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from calibrant.calibrators.map_method import map_methods as methods  # noqa: E402
from calibrant.contrib.onnx import append_map, from_onnx, to_onnx  # noqa: E402
from calibrant.core.errors import CalibrationInputError  # noqa: E402
from tests.adapters.examples import run_example  # noqa: E402

EXACT = {"rtol": 1e-9, "atol": 1e-12}
# Method, number of classes, and `scope` of the fit.
MAPS = [
    ("temperature", 2, "positive"),
    ("temperature", 3, None),
    ("vector", 2, "positive"),
    ("vector", 3, None),
    ("class_temperature", 3, None),
    ("dirichlet", 3, None),
    ("platt", 2, "positive"),
    ("platt", 3, "class:2"),
    ("platt", 3, "top_label"),
    *(
        (method, 3, None)
        for method in ("platt", "beta", "isotonic", "spline", "histogram", "scaling_binning")
    ),
    ("beta", 2, "positive"),
    ("isotonic", 2, "positive"),
    ("isotonic", 3, "class:1"),
    ("spline", 2, "positive"),
    ("histogram", 2, "positive"),
    ("histogram", 3, "top_label"),
    ("scaling_binning", 2, "positive"),
]


def test_every_method_is_tested():
    assert {method for method, _, _ in MAPS} == set(methods())


def data(n_classes: int, n: int = 1500, seed: int = 0):
    rng = np.random.default_rng([n_classes, seed])
    logits = rng.normal(0, 2, (n, n_classes))
    power = np.exp(logits / 2)
    truth = power / power.sum(1, keepdims=True)
    labels = (rng.random(n)[:, None] > truth.cumsum(1)).sum(1)
    return logits, labels


def probabilities_of(logits):
    power = np.exp(logits - logits.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def fitted(method: str, n_classes: int, scope: str | None):
    logits, labels = data(n_classes)
    options = {} if scope is None else {"scope": scope}
    found = cal.fit_map(probabilities_of(logits), labels, method=method, **options)
    assert found.parameters is not None
    return found


def run(model, scores):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: scores})


def expected(map_, **scores):
    found = map_(**scores)
    return found if found.ndim == 2 else found[:, None]


@pytest.mark.parametrize(("method", "n_classes", "scope"), MAPS)
def test_onnxruntime_computes_what_the_library_computes(method, n_classes, scope):
    map_ = fitted(method, n_classes, scope)
    logits, _ = data(
        n_classes, seed=1
    )  # not on the edges of the fit: the softmax may differ by one rounding
    rows = probabilities_of(logits)
    edges = np.eye(n_classes)
    rows = np.concatenate([rows, edges])
    (found,) = run(to_onnx(map_, n_classes, dtype="float64"), rows)
    wanted = expected(map_, probabilities=rows)
    if found.shape[1] == 2 and wanted.shape[1] == 1:  # the library returns P(class 1) of two
        found = found[:, 1:]
    np.testing.assert_allclose(found, wanted, **EXACT)
    (found,) = run(to_onnx(map_, n_classes, is_logits=True, dtype="float64"), logits)
    wanted = expected(map_, logits=logits)
    if found.shape[1] == 2 and wanted.shape[1] == 1:
        found = found[:, 1:]
    np.testing.assert_allclose(found, wanted, **EXACT)
    again = from_onnx(to_onnx(map_, n_classes).SerializeToString())
    assert again.digest == map_.digest
    np.testing.assert_array_equal(again(rows), map_(rows))


@pytest.mark.parametrize("is_logits", [False, True])
def test_one_column_is_class_1_of_two(is_logits):
    map_ = fitted("platt", 2, "positive")
    logits, _ = data(2)
    odds = logits[:, 1] - logits[:, 0]
    given = odds if is_logits else probabilities_of(logits)[:, 1]
    made = to_onnx(map_, 2, n_columns=1, is_logits=is_logits, dtype="float64")
    (found,) = run(made, given[:, None])
    np.testing.assert_allclose(found[:, 0], map_(probabilities_of(logits)[:, 1]), **EXACT)


@pytest.mark.parametrize("method", ["histogram", "isotonic", "scaling_binning"])
def test_scores_on_the_edges_of_bins_fall_into_the_bins_of_the_library(method):
    map_ = fitted(method, 2, "positive")
    points = map_.parameters["x" if method == "isotonic" else "edges"]
    scores = np.unique([*points, *np.nextafter(points, 0), *np.nextafter(points, 1)])
    scores = scores[(scores >= 0) & (scores <= 1)]
    (found,) = run(to_onnx(map_, 2, n_columns=1, dtype="float64"), scores[:, None])
    np.testing.assert_allclose(found[:, 0], map_(scores), **EXACT)


def classifier():
    """Return a linear classifier of three classes with a softmax, in float32."""
    weights = np.random.default_rng(0).normal(0, 2, (4, 3)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["p"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 3]),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("output", ["p", "logits"])
def test_a_map_is_appended_to_a_classifier(output):
    map_, model = fitted("vector", 3, None), classifier()
    calibrated = append_map(model, map_, output=output, is_logits=output == "logits")
    x = np.random.default_rng(1).normal(0, 1, (50, 4)).astype(np.float32)
    _, p = run(model, x)
    outputs = [each.name for each in calibrated.graph.output]
    found = dict(zip(outputs, run(calibrated, x), strict=True))
    (own,) = set(outputs) - {"p", "logits"}
    np.testing.assert_allclose(found[own], map_(p.astype(float)), atol=2e-6)
    assert from_onnx(calibrated).digest == map_.digest
    with pytest.raises(CalibrationInputError, match="expected `output` to be one"):
        append_map(model, map_)


def test_files_that_hold_no_map_or_another_one_are_refused(tmp_path):
    map_ = fitted("temperature", 3, None)
    with pytest.raises(CalibrationInputError, match="without metadata"):
        from_onnx(classifier())
    made = to_onnx(map_, 3)
    onnx.save(made, tmp_path / "map.onnx")
    assert from_onnx(tmp_path / "map.onnx").digest == map_.digest
    (entry,) = made.metadata_props
    entry.value = entry.value.replace('"temperature": ', '"temperature": 1')
    with pytest.raises(CalibrationInputError, match="another digest"):
        from_onnx(made)


def test_a_map_that_does_not_fit_is_refused():
    with pytest.raises(CalibrationInputError, match="Received 4 classes"):
        to_onnx(fitted("vector", 3, None), 4)
    with pytest.raises(CalibrationInputError, match="without parameters"):
        to_onnx(cal.CalibrationMap.from_dict({"method": "platt", "parameters": None}), 2)
    with pytest.raises(CalibrationInputError, match="Received 2 columns"):
        to_onnx(fitted("platt", 3, "top_label"), 3, n_columns=2)


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_example("calibrant.contrib.onnx")
    assert "True" in capsys.readouterr().out
