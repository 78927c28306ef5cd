"""Apply a calibration map to a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.calibrators.labelled_rows import log_probabilities
from calibrant.calibrators.map_method import MapMethod, map_methods
from calibrant.calibrators.one_against_rest import at_classes
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError, check_one_of


def apply(fitted: Mapping[str, Any], batch: Batch) -> Floats:
    """Apply a map to a batch and return its probabilities.

    Parameters
    ----------
    fitted : the result of `fit`, or the same read from JSON: method, scope, class and parameters suffice
    batch : Batch

    Returns
    -------
    float64 (n,) for the scopes positive, top_label and class; (n, n_classes) with rows that sum to 1 for full.

    Raises
    ------
    CalibrationInputError
        Unknown method, no parameters, or a scope that the batch does not have.
    """
    method, parameters = method_of(str(fitted.get("method"))), fitted.get("parameters")
    if not isinstance(parameters, Mapping):
        detail = "the map has no parameters to apply"
        raise CalibrationInputError.at("/parameters", "not_fitted", detail)
    scope = fitted.get("scope")
    if scope not in method.scopes:
        detail = f"Received scope {str(scope)[:60]} for {method.slug}; expected one of {', '.join(method.scopes)}."
        raise CalibrationInputError.at("/scope", "one_of", detail)
    if scope == "full":
        if method.at_rows is None:
            return at_classes(method, parameters, batch.probabilities)
        return method.at_rows(parameters, log_probabilities(batch))
    if scope == "positive" and method.at is None and batch.n_classes == 2:
        assert method.at_rows is not None
        return np.asarray(method.at_rows(parameters, log_probabilities(batch))[:, 1])
    return method.at_scores(parameters, _score(fitted, batch))


def method_of(slug: str) -> MapMethod:
    known = map_methods()
    check_one_of("method", slug, known)
    return known[slug]


def _score(fitted: Mapping[str, Any], batch: Batch) -> Floats:
    p = batch.probabilities
    if fitted["scope"] == "top_label":
        return np.asarray(p.max(axis=1))
    class_index = 1 if fitted["scope"] == "positive" else fitted.get("class")
    if (
        type(class_index) is not int
        or not 0 <= class_index < batch.n_classes
        or (fitted["scope"] == "positive" and batch.n_classes != 2)
    ):
        detail = f"Received a batch of {batch.n_classes} classes for a map of {fitted['scope']} {class_index}. Apply it to the model's classes."
        raise CalibrationInputError.at("/class", "class_range", detail)
    return np.asarray(p[:, class_index])
