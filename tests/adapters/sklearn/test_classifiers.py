"""The classifiers: scikit-learn's own checks, held-out calibration, and the map in use."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

pytest.importorskip("sklearn", reason="scikit-learn is installed by `make test-adapters`")

from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_sample_weight_equivalence_on_dense_data,
)

from calibrant.contrib.sklearn import CalibratedClassifier, PromotedMapClassifier
from tests.adapters.examples import run_example


def data(n_classes: int = 3, n: int = 2000):
    X, y = make_classification(
        n, 12, n_informative=6, n_redundant=4, n_classes=n_classes, random_state=0
    )
    names = np.array(["cat", "dog", "owl", "yak"])[:n_classes]
    return X[: n // 2], names[y[: n // 2]], X[n // 2 :], y[n // 2 :]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_is_an_estimator():
    check_estimator(CalibratedClassifier(LogisticRegression()))


@pytest.mark.filterwarnings("ignore")
def test_weights_equal_repeated_rows_of_a_support_vector_machine():
    """With the solver's default tolerance, scikit-learn's own check fails for LinearSVC alone, by 3e-5."""
    inside = LinearSVC(tol=1e-12, max_iter=1_000_000, dual=False)
    check_sample_weight_equivalence_on_dense_data("wrapped", CalibratedClassifier(inside))


@pytest.mark.parametrize(
    ("n_classes", "method"),
    [
        *((2, method) for method in ("temperature", "isotonic", "platt")),
        *((3, method) for method in ("temperature", "dirichlet", "isotonic", "beta", "spline")),
    ],
)
def test_an_overconfident_classifier_becomes_calibrated(n_classes, method):
    X, y, held_out, truth = data(n_classes)
    found = CalibratedClassifier(GaussianNB(), method=method).fit(X, y)
    probabilities = found.predict_proba(held_out)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-9)
    labels = truth.tolist()
    own = GaussianNB().fit(X, y).predict_proba(held_out)
    assert float(cal.ece(probabilities, labels)) < float(cal.ece(own, labels))
    assert list(found.classes_) == ["cat", "dog", "owl"][:n_classes]
    assert set(found.predict(held_out)) <= set(found.classes_)


def test_the_map_is_the_librarys_on_cross_validated_predictions():
    X, y, held_out, _ = data(3)
    found = CalibratedClassifier(GaussianNB()).fit(X, y)
    predicted = cross_val_predict(GaussianNB(), X, y, cv=5, method="predict_proba")
    labels = np.unique(y, return_inverse=True)[1]
    expected = cal.fit_map(predicted, labels, method="temperature")
    own = GaussianNB().fit(X, y).predict_proba(held_out)
    np.testing.assert_array_equal(found.predict_proba(held_out), expected(own))


def test_a_fitted_classifier_may_be_wrapped():
    X, y, held_out, _ = data(2)
    inside = GaussianNB().fit(X[:500], y[:500])
    found = CalibratedClassifier(FrozenEstimator(inside)).fit(X[500:], y[500:])
    labels = (y[500:] == "dog").astype(int)
    expected = cal.fit_map(inside.predict_proba(X[500:])[:, 1], labels, method="temperature")
    own = inside.predict_proba(held_out)[:, 1]
    np.testing.assert_allclose(found.predict_proba(held_out)[:, 1], expected(own), atol=1e-12)


def test_a_map_of_one_probability_is_refused_where_all_are_needed():
    X, y, held_out, _ = data(3)
    current = Promoted()
    own = GaussianNB().fit(X, y)
    labels = np.unique(y, return_inverse=True)[1]
    current.map = cal.fit_map(own.predict_proba(X), labels, method="isotonic", scope="top_label")
    with pytest.raises(ValueError, match="scope top_label"):
        PromotedMapClassifier(own, current).predict_proba(held_out)


@pytest.mark.parametrize("method", ["temperature", "isotonic", "platt"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_values_of_a_decision_function_are_logits(n_classes, method):
    X, y, held_out, truth = data(n_classes)
    found = CalibratedClassifier(LinearSVC(), method=method).fit(X, y)
    labels = np.unique(y, return_inverse=True)[1]
    values = cross_val_predict(LinearSVC(), X, y, cv=5, method="decision_function")
    expected = cal.fit_map(logits=values, labels=labels, method=method)
    sent = LinearSVC().fit(X, y).decision_function(held_out)
    mapped = expected(logits=sent)
    probabilities = found.predict_proba(held_out)
    own = probabilities[:, 1] if n_classes == 2 else probabilities
    np.testing.assert_allclose(own, mapped, atol=1e-12)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-9)
    labels = truth.tolist()
    assert float(cal.ece(probabilities, labels)) < float(cal.ece(logits=sent, labels=labels))


def test_one_against_one_values_are_refused():
    X, y, _, _ = data(4, 400)
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        CalibratedClassifier(SVC(decision_function_shape="ovo")).fit(X, y)


def test_weights_are_those_of_the_classifier_and_the_map():
    X, y, held_out, _ = data(2)
    weights = np.where(y == "cat", 3.0, 1.0)
    found = CalibratedClassifier(GaussianNB()).fit(X, y, sample_weight=weights)
    own = GaussianNB().fit(X, y, sample_weight=weights)
    predicted = cross_val_predict(
        GaussianNB(), X, y, cv=5, method="predict_proba", params={"sample_weight": weights}
    )
    expected = cal.fit_map(predicted[:, 1], y == "dog", method="temperature", weights=weights)
    mapped = expected(own.predict_proba(held_out)[:, 1])
    np.testing.assert_allclose(found.predict_proba(held_out)[:, 1], mapped, atol=1e-12)


def test_named_columns_reach_the_classifier():
    pd = pytest.importorskip("pandas")
    X, y, held_out, _ = data(3)
    names = [f"column {i}" for i in range(X.shape[1])]
    scaled = make_column_transformer((StandardScaler(), names[:8])).set_output(transform="pandas")
    pipeline = make_pipeline(scaled, LogisticRegression())
    found = CalibratedClassifier(pipeline).fit(pd.DataFrame(X, columns=names), y)
    assert list(found.feature_names_in_) == names
    assert found.estimator_[-1].feature_names_in_[0] == "standardscaler__column 0"
    assert found.predict_proba(pd.DataFrame(held_out, columns=names)).shape == (len(held_out), 3)


def test_data_that_determine_no_map_leave_probabilities_as_they_are():
    X = np.concatenate([np.linspace(-3, -2, 20), np.linspace(2, 3, 20)])[:, None]
    y = X[:, 0] > 0
    with pytest.warns(UserWarning, match="separable"):
        found = CalibratedClassifier(LogisticRegression()).fit(X, y)
    own = LogisticRegression().fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(found.predict_proba(X), own)


class Promoted:
    """A map that is promoted while it is in use."""

    def __init__(self) -> None:
        self.map = None

    def __call__(self, probabilities):
        return np.array(probabilities) if self.map is None else self.map(probabilities)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_promoted_map_is_followed_in_the_order_of_its_classes(n_classes):
    X, y, held_out, _ = data(n_classes)
    inside, promoted = GaussianNB().fit(X, y), Promoted()
    names = ["cat", "dog", "owl"][:n_classes][::-1]
    found = PromotedMapClassifier(inside, promoted, classes=names)
    own = inside.predict_proba(held_out)
    np.testing.assert_allclose(found.predict_proba(held_out), own, atol=1e-12)
    labels = [names.index(each) for each in y]
    predicted = inside.predict_proba(X)[:, ::-1]
    given = predicted[:, 1] if n_classes == 2 else predicted
    method = "platt" if n_classes == 2 else "vector"
    promoted.map = cal.fit_map(given, labels, method=method)
    mapped = promoted.map(own[:, 0] if n_classes == 2 else own[:, ::-1])
    expected = np.stack([mapped, 1 - mapped], 1) if n_classes == 2 else mapped[:, ::-1]
    np.testing.assert_allclose(found.predict_proba(held_out), expected, atol=1e-12)
    assert list(found.predict(held_out)) == list(found.classes_[expected.argmax(axis=1)])
    with pytest.raises(ValueError, match="expected an order of"):
        PromotedMapClassifier(inside, promoted, classes=["x", *names[1:]]).predict_proba(held_out)


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.sklearn")
    assert capsys.readouterr().out
