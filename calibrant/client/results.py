"""Responses of the service as objects of the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.metrics.estimate import Estimate
from calibrant.results import MultilabelReport, Report
from calibrant.results.base import Result


class Alarm(Result):
    """One alarm; its values are attributes by name: `id`, `title`, `state`, `raised_at`, `effect`, ..."""

    def __repr__(self) -> str:
        values = self.about
        return f"Alarm({values['id']!r}, {values['title']!r}, state={values['state']!r})"


class MapVersion(Result):
    """Summary of a frozen map: `version`, `method`, `digest`, `n`, `before`, `after`, ..., without the map itself."""

    def __repr__(self) -> str:
        values = self.about
        return (
            f"MapVersion({values['version']}, method={values.get('method')!r}, n={values.get('n')})"
        )


class Maps(tuple[MapVersion, ...]):
    """Frozen maps of a model, oldest first.

    Attributes
    ----------
    current : version that was promoted last, None if none was
    promotions : the last promotions, as the service returns them
    """

    current: int | None = None
    promotions: tuple[Mapping[str, Any], ...] = ()


class Receipt(Result):
    """What the service did with a batch: `batch_id`, `status`, `accepted`, `rejected`, `duplicate`, `errors`, ...

    Of labels that are merged, `joined` rows have their prediction, and `waiting` rows wait for it.
    """

    def __repr__(self) -> str:
        values = self.about
        counts = f"accepted={values['accepted']}, rejected={values['rejected']}"
        if values.get("waiting"):
            counts += f", waiting={values['waiting']}"
        return f"Receipt({values['batch_id']!r}, {values['status']!r}, {counts})"


def report_of(values: Mapping[str, Any], ci: float) -> Report:
    """Return the report in a response of `GET metrics`.

    Parameters
    ----------
    values : the response
    ci : coverage of the intervals that the request named
    """
    if "labels" in values:
        return _of_labels(values, ci)
    about = {name: value for name, value in values.items() if name != "metrics"} | {"ci": ci}
    estimates = {
        name: Estimate.from_dict(each, name, about) for name, each in values["metrics"].items()
    }
    return Report(estimates, about)


def _of_labels(values: Mapping[str, Any], ci: float) -> MultilabelReport:
    """Return the means over labels, with the report of each label."""
    labels = {name: report_of(each, ci) for name, each in values["labels"].items()}
    means = report_of({name: each for name, each in values.items() if name != "labels"}, ci)
    return MultilabelReport(means, means.about, labels, {})
