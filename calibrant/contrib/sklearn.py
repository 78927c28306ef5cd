"""scikit-learn classifiers with a calibration map behind them: one that fits it, and one that follows the promoted map.

calibrated = CalibratedClassifier(LogisticRegression(), method="dirichlet").fit(X, y)
calibrated.predict_proba(X_new)

promoted = cal.Client(url, key).model("triage").map(refresh=30)
following = PromotedMapClassifier(classifier, promoted)  # of a fitted classifier
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy

from calibrant.contrib.extras import missing
from calibrant.library import fit_map

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.utils import column_or_1d, get_tags, indexable
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        has_fit_parameter,
        validate_data,
    )
except ModuleNotFoundError as error:
    raise missing(error, "sklearn") from error

Floats = np.ndarray[Any, np.dtype[np.float64]]
PROBABILITIES = "predict_proba"
MAPS_ALL = ("full",)
MAPS_TWO = ("full", "positive")


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier and a calibration map that is fitted to its cross-validated predictions.

    The classifier itself is then fitted to all data. Wrap a fitted one in `sklearn.frozen.FrozenEstimator`: only the map is
    fitted then, and the data must be other than those that the classifier was fitted to.

    Parameters
    ----------
    estimator : classifier with `predict_proba`, or with `decision_function`, such as a support vector machine: its values are logits.
        Default: `LogisticRegression()`
    method : as in `calibrant.fit_map`
    cv : as in `sklearn.model_selection.cross_val_predict`

    Attributes
    ----------
    classes_ : in the order of `predict_proba`
    estimator_ : the fitted classifier
    map_ : the `calibrant.CalibrationMap`. If the data determine none, `fit` warns and probabilities stay as they are
    """

    def __init__(self, estimator: Any = None, method: str = "temperature", cv: Any = 5) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CalibratedClassifier:
        """Fit classifier and map.

        Parameters
        ----------
        X, y : as the classifier takes them: a table with named columns stays one
        sample_weight : (n,) or None, of the map, and of the classifier if its `fit` takes it
        """
        X, y = indexable(X, column_or_1d(y, warn=True))
        validate_data(self, X, skip_check_array=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Received one class; expected two or more classes.")
        estimator, weighted = clone(self._classifier()), {}
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        if weights is not None and has_fit_parameter(estimator, "sample_weight"):
            weighted = {"sample_weight": weights}
        self.scores_ = _scores_method(estimator)
        predicted = cross_val_predict(
            estimator, X, y, cv=self.cv, method=self.scores_, params=weighted
        )
        self.estimator_ = estimator.fit(X, y, **weighted)
        given = self._given(predicted)
        self.map_ = fit_map(**given, labels=labels, method=self.method, weights=weights)
        self._report(self.map_.to_dict())
        return self

    def _classifier(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _given(self, predicted: Any) -> dict[str, Any]:
        """Return scores as arguments of the library: the values of a decision function are logits."""
        found, n_classes = np.asarray(predicted, np.float64), len(self.classes_)
        if self.scores_ == PROBABILITIES:
            return {"probabilities": _given(found)}
        if found.ndim == 2 and found.shape[1] != n_classes:
            detail = f"Received {found.shape[1]} values of decision_function for {n_classes} classes; expected one for each class."
            raise ValueError(f"{detail} Set decision_function_shape='ovr'.")
        return {"logits": found}

    def _report(self, fitted: dict[str, Any]) -> None:
        _check_scope(fitted.get("scope"), len(self.classes_))
        if fitted.get("parameters") is None:
            detail = f"No map was fitted ({fitted.get('reason')}): {fitted.get('detail')}."
            warnings.warn(f"{detail} Probabilities stay as they are.", UserWarning, stacklevel=3)

    def predict_proba(self, X: Any) -> Floats:
        """Return recalibrated probabilities, (n, n_classes)."""
        check_is_fitted(self)
        if getattr(X, "ndim", 2) == 1:
            raise ValueError(
                "Received an array of one dimension; expected rows. Reshape your data."
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        given = self._given(getattr(self.estimator_, self.scores_)(X))
        if self.map_.to_dict().get("parameters") is None:
            return _as_sent(**given)
        return _both(self.map_(**given))

    def __sklearn_tags__(self) -> Any:
        """Return what the classifier inside accepts."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self._classifier()).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Return the class with the largest recalibrated probability."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class PromotedMapClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A fitted classifier whose probabilities pass through the promoted map of a model of the service.

    Parameters
    ----------
    estimator : fitted classifier with `predict_proba`
    current_map : `client.model(name).map()`: before a first promotion it returns probabilities as they are
    classes : names of the classes as the model declares them, if its order differs from `estimator.classes_`
    """

    def __init__(
        self,
        estimator: Any,
        current_map: Callable[[Any], Any],
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.estimator = estimator
        self.current_map = current_map
        self.classes = classes

    def fit(self, X: Any = None, y: Any = None) -> PromotedMapClassifier:
        """Return the classifier: there is nothing to fit."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the classifier inside is fitted."""
        return hasattr(self.estimator, "classes_")

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """Classes in the order of `predict_proba`: of the classifier inside."""
        return np.asarray(self.estimator.classes_)

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities recalibrated by the map that is promoted now, (n, n_classes)."""
        check_is_fitted(self)
        given = np.asarray(self.estimator.predict_proba(X), np.float64)
        in_use = getattr(self.current_map, "map", None)
        if in_use is not None:
            _check_scope(in_use.to_dict().get("scope"), given.shape[1])
        order = self._order()
        found = np.empty_like(given)
        found[:, order] = _recalibrated(self.current_map, given[:, order])
        return found

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Return the class with the largest recalibrated probability."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _order(self) -> list[int]:
        """Return the place in `classes_` of each class of the model."""
        own = [str(each) for each in self.classes_]
        names = own if self.classes is None else [str(each) for each in self.classes]
        if sorted(names) != sorted(own):
            raise ValueError(f"Received classes {names}; expected an order of {own}.")
        return [own.index(name) for name in names]


def _given(probabilities: Any) -> Floats:
    """Return P(class 1) of two classes, since their maps are of it; else all probabilities."""
    found = np.asarray(probabilities, np.float64)
    return found[:, 1] if found.shape[1] == 2 else found


def _recalibrated(map_: Callable[[Any], Any], probabilities: Any) -> Floats:
    return _both(map_(_given(probabilities)))


def _both(mapped: Any) -> Floats:
    """Return probabilities of all classes, from those of class 1 of two."""
    found = np.asarray(mapped, np.float64)
    return np.stack([1.0 - found, found], axis=1) if found.ndim == 1 else found


def _as_sent(probabilities: Any = None, logits: Any = None) -> Floats:
    if logits is None:
        return _both(probabilities)
    return _both(
        scipy.special.expit(logits) if logits.ndim == 1 else scipy.special.softmax(logits, axis=1)
    )


def _scores_method(estimator: Any) -> str:
    """Return the method that gives scores: probabilities if the classifier has them, else the values of its decision function."""
    for name in (PROBABILITIES, "decision_function"):
        if hasattr(estimator, name):
            return name
    detail = f"Received {type(estimator).__name__}; expected a classifier with predict_proba or decision_function."
    raise ValueError(detail)


def _check_scope(scope: str | None, n_classes: int) -> None:
    """Reject a map of one probability where all are needed."""
    allowed = MAPS_TWO if n_classes == 2 else MAPS_ALL
    if scope not in allowed:
        raise ValueError(
            f"Received a map of scope {scope}; expected {' or '.join(allowed)} with {n_classes} classes, such as a "
            "temperature."
        )
