"""Responses of the service as objects of the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.inference.null_reference import ASSUMPTION, NullReference
from calibrant.metrics.estimate import Estimate
from calibrant.results import Report
from calibrant.results.values import ResultValues

# What `Estimate` has as attributes; everything else of a metric is its `extra`.
_NULL = ("null_mean", "null_q95", "null_q95_error", "above_null")
# What a verdict has only with a sealed cohort, or only with an alarm.
_LATER = frozenset(
    (
        "title",
        "summary",
        "alarmed_at",
        "acknowledged_at",
        "start_of_change",
        "effect",
        "bins_since_change",
        "recent",
    )
)
_OWN = ("value", "reason", "detail", "interval", "n", "n_ratings", *_NULL)


class Drift(ResultValues):
    """The verdict of the drift alarm; the values of `GET drift` are attributes by name: `status`, `summary`, ...

    Values that need a sealed cohort, or an alarm, are None until there is one.
    """

    def __getattr__(self, name: str) -> Any:
        return None if name in _LATER and name not in self._values else super().__getattr__(name)

    def __repr__(self) -> str:
        values = self._values
        action = (values.get("recommendation") or {}).get("action")
        reason = f", reason={values['reason']!r}" if values.get("reason") else ""
        return f"Drift(status={values['status']!r}{reason}, recommendation={action!r})"


class Alarm(ResultValues):
    """One alarm; its values are attributes by name: `id`, `title`, `state`, `raised_at`, `effect`, ..."""

    def __repr__(self) -> str:
        values = self._values
        return f"Alarm({values['id']!r}, {values['title']!r}, state={values['state']!r})"


class MapVersion(ResultValues):
    """Summary of a frozen map: `version`, `method`, `digest`, `n`, `before`, `after`, ..., without the map itself."""

    def __repr__(self) -> str:
        values = self._values
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


class Receipt(ResultValues):
    """What the service did with a batch: `batch_id`, `status`, `accepted`, `rejected`, `duplicate`, `errors`, ...

    Of labels that are merged, `joined` rows have their prediction, and `waiting` rows wait for it.
    """

    def __repr__(self) -> str:
        values = self._values
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
    about = {name: value for name, value in values.items() if name != "metrics"} | {"ci": ci}
    estimates = {name: estimate_of(name, each, about) for name, each in values["metrics"].items()}
    return Report(estimates, about)


def estimate_of(name: str, values: Mapping[str, Any], about: Mapping[str, Any]) -> Estimate:
    """Return one metric of a response.

    Examples
    --------
    >>> values = {"value": 0.2, "interval": [0.1, 0.3], "null_mean": None, "null_q95": None, "n": 7, "n_ratings": 9, "bins": 15}
    >>> estimate = estimate_of("ece", values, {"n_units": 7, "n_units_split": 0})
    >>> estimate
    Estimate(ece=0.2000, interval=[0.1000, 0.3000], n=7)
    >>> estimate.extra, estimate.to_dict() == values
    ({'bins': 15}, True)
    """
    interval = values.get("interval")
    null = None
    if values.get("null_mean") is not None and values.get("null_q95") is not None:
        null = NullReference(values["null_mean"], values["null_q95"], values.get("null_q95_error"))
    return Estimate(
        values["value"],
        reason=values.get("reason"),
        detail=values.get("detail"),
        interval=None if interval is None else (interval[0], interval[1]),
        null=null,
        extra={
            key: value
            for key, value in values.items()
            if key not in _OWN and (key, value) != ("null_assumption", ASSUMPTION)
        },
        name=name,
        n=values.get("n"),
        n_ratings=values.get("n_ratings"),
        n_units=about.get("n_units"),
        n_units_split=about.get("n_units_split"),
    )
