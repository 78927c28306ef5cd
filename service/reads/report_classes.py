"""The error of each class in a report whose verdict is of the top class: errors of several classes can cancel there."""

from collections.abc import Mapping
from typing import Any

from calibrant.core.query import default_bins
from calibrant.figures.base import scope_of
from calibrant.quality_report.contents import MAX_CLASSES
from calibrant.results.metrics import metrics
from calibrant_server.workers.queries.query import Query, query_for
from calibrant_server.workers.store.model_config import ModelConfig

CLASS = "class "


def scored_classes(scope: str | None, config: ModelConfig) -> list[int]:
    """Return the classes whose own error a report has, of two classes the second; none if the verdict is of one class.

    Parameters
    ----------
    scope : of the request, None for the model's own
    """
    spec = config.spec()
    if (scope or spec.default_scope) != "top_label" or spec.n_classes > MAX_CLASSES:
        return []
    return [1] if spec.n_classes == 2 else list(spec.stored_classes)


def class_queries(scope: str | None, config: ModelConfig, **given: Any) -> dict[str, Query]:
    """Return the query of each class by name; `given` are the parameters that all queries of the report share."""
    return {
        f"{CLASS}{k}": query_for(
            metrics, metrics="ece", scope=f"class:{k}", bins=default_bins(config.spec(), f"class:{k}"), **given
        )
        for k in scored_classes(scope, config)
    }  # fmt: skip


def class_errors(
    results: Mapping[str, Mapping[str, Any]], config: ModelConfig
) -> dict[str, Mapping[str, Any]]:
    """Return the ECE of each class by its score, such as "probability of tumour"."""
    classes = list(config.classes or ())
    return {
        scope_of({"scope": f"class:{name.removeprefix(CLASS)}", "classes": classes}): each["metrics"]["ece"]
        for name, each in results.items()
        if name.startswith(CLASS) and "ece" in each["metrics"]
    }  # fmt: skip
