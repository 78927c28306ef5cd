"""Result of `evaluate`: the values of several metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calibrant.inference.slice_test import sentence_of
from calibrant.input.notes import sentences_of
from calibrant.metrics import is_error
from calibrant.metrics.estimate import Estimate, number
from calibrant.printing import html_table, text_table
from calibrant.results.values import MISSING, bounds_text, cell, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.results.temperature import Temperature


MULTILABEL = "multilabel"


class Report(Mapping[str, Estimate]):
    """Estimates by slug, with the counts of the data that they describe.

    Parameters
    ----------
    estimates : by slug, with the options of the request
    about : the counts, `raters`, `scope`, `bins` and `ci` of the request

    Attributes
    ----------
    n_predictions, n_labelled, n_ratings, n_units : counts of the data
    n_units_split : units that are split over batches or panes; each part counts as a unit of its own in `n_units`
    detectable : smallest errors that these data would have shown
    """

    def __init__(self, estimates: Mapping[str, Estimate], about: Mapping[str, Any]) -> None:
        self._estimates, self.about = dict(estimates), dict(about)

    def __getitem__(self, name: str) -> Estimate:
        try:
            return self._estimates[name]
        except KeyError:
            raise KeyError(f"the report has no {name!r}; it has {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._estimates)

    def __len__(self) -> int:
        return len(self._estimates)

    @property
    def n_predictions(self) -> int:
        """Number of predictions, labelled or not."""
        return int(self.about["n_predictions"])

    @property
    def n_labelled(self) -> int:
        """Number of predictions with at least one rating."""
        return int(self.about["n_labelled"])

    @property
    def n_ratings(self) -> int:
        """Number of ratings."""
        return int(self.about["n_ratings"])

    @property
    def n_units(self) -> int:
        """Number of independent units; of a unit that is split each part counts."""
        return int(self.about["n_units"])

    @property
    def n_units_split(self) -> int:
        """Number of units that are split over batches or panes, and so count more than once in `n_units`."""
        return int(self.about["n_units_split"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: the counts, and `metrics` as the service returns them."""
        return self.about | {
            "metrics": {name: estimate.to_dict() for name, estimate in self.items()}
        }

    def verdicts(self, tolerance: float) -> dict[str, str]:
        """Return, for each calibration error, what its interval says about a tolerance that was set beforehand.

        Parameters
        ----------
        tolerance : largest acceptable true error, a probability

        Returns
        -------
        dict by slug of "within_tolerance", "outside" or "not_shown"; metrics that are not calibration errors are left out
        """
        return {
            name: estimate.verdict(tolerance)
            for name, estimate in self.items()
            if is_error(name.partition("(")[0])
        }

    @property
    def detectable(self) -> dict[str, Any] | None:
        """Smallest intercept, change of slope and local error that these data detect with 80 % power at the 5 % level."""
        found: dict[str, Any] | None = self.about.get("detectable")
        return found

    def to_html(self) -> str:
        """Return a report for a quality committee: a complete page, which needs nothing from elsewhere and prints.

        Raises
        ------
        ImportError
            Jinja2 or matplotlib is not installed; the extra `report` brings them.
        """
        from calibrant.quality_report import ReportContents, page

        found = {} if self.detectable is None else {"now": self.detectable}
        return page(ReportContents("Calibration report", self.to_dict(), detectable=found))

    def plot(self) -> Figure:
        """Draw each value with its interval and the range that is usual for a calibrated model.

        Returns
        -------
        Figure, one panel for calibration errors and one for each other metric

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.figures.base import empty_figure
        from calibrant.figures.estimates import draw_estimates

        return draw_estimates(self.to_dict(), on=empty_figure(shown=True))

    @property
    def _caption(self) -> str:
        caption = (
            f"{counted(self.about)}; raters={self.about['raters']}, scope={self.about['scope']}"
        )
        if self.n_units_split:
            about = "about " if self.about.get("n_units_split_estimated") else ""
            caption += f"\nunits split over batches or panes: {about}{self.n_units_split:,}; each part counts as a unit of its own"
        return "\n".join([caption, *sentences_of(self.about)])

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = (
            "metric",
            "value",
            f"{100 * self.about['ci']:g} % interval",
            "null mean",
            "null 95 %",
        )
        return header, [_row(name, estimate) for name, estimate in self.items()]

    def __repr__(self) -> str:
        return text_table(*self._table(), caption=f"Report of {self._caption}")

    def _repr_html_(self) -> str:
        return html_table(*self._table(), caption=self._caption)


def _row(name: str, estimate: Estimate) -> tuple[str, ...]:
    if estimate.value is None:
        return name, MISSING, str(estimate.reason), "", ""
    interval = (
        bounds_text(estimate.interval)
        if estimate.interval
        else str(estimate.extra.get("interval_reason", MISSING))
    )
    return (
        name,
        number(estimate.value),
        interval,
        cell(estimate.null_mean),
        cell(estimate.null_q95),
    )


class SlicedReport(Report):
    """Estimates of all rows by slug, with the report of each slice.

    Attributes
    ----------
    slices : report of each slice, by its name
    slice_test : which slices are worse than chance among so many explains (`inference/slice_test.py`)
    """

    def __init__(
        self,
        estimates: Mapping[str, Estimate],
        about: Mapping[str, Any],
        slices: Mapping[str, Report],
        slice_test: Mapping[str, Any],
    ) -> None:
        super().__init__(estimates, about)
        self.slices, self.slice_test = dict(slices), dict(slice_test)

    @property
    def flagged(self) -> list[str]:
        """Slices that are worse than chance explains; one of them is calibrated with a probability of at most 5 %."""
        return list(self.slice_test["flagged"])

    @property
    def worst(self) -> str | None:
        """The slice with most evidence of an error, which may be one by chance; None if none has labels."""
        found = self.slice_test["worst"]
        return None if found is None else str(found["slice"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: `metrics` of all rows, `slices` with each slice's own, and `slice_test`."""
        own = {name: each.to_dict() for name, each in self.slices.items()}
        return super().to_dict() | {"slice_test": self.slice_test, "slices": own}

    @property
    def _caption(self) -> str:
        return f"{super()._caption}\n{sentence_of(self.slice_test, len(self.slices))}"


class MultilabelReport(Report):
    """Means over labels by slug, with the report and the temperature of each label.

    Attributes
    ----------
    labels : report of each label, by its name
    temperatures : of each label, by its name; none of a report of the service, which has them in `by_label("temperature")`
    """

    def __init__(
        self,
        estimates: Mapping[str, Estimate],
        about: Mapping[str, Any],
        labels: Mapping[str, Report],
        temperatures: Mapping[str, Temperature],
    ) -> None:
        super().__init__(estimates, about)
        self.labels, self.temperatures = dict(labels), dict(temperatures)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: `metrics` are means over labels, `labels` has each label's own."""
        return super().to_dict() | {
            "labels": {
                name: each.to_dict() | self._temperature(name) for name, each in self.labels.items()
            }
        }

    def _temperature(self, name: str) -> dict[str, Any]:
        fitted = self.temperatures.get(name)
        return {} if fitted is None else {"temperature": fitted.to_dict()}


def of_labels(
    labels: Mapping[str, Report], temperatures: Mapping[str, Temperature]
) -> MultilabelReport:
    """Return the means over labels of their reports, with the counts of all."""
    reports = list(labels.values())
    means = {slug: _mean([each[slug] for each in reports]) for slug in reports[0]}
    return MultilabelReport(means, _about(reports), labels, temperatures)


def _about(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the counts of all labels; rows and units are those of the label that has most."""
    own = {name: each for name, each in reports[0].about.items() if name not in ("detectable", "slice")}  # fmt: skip
    most = {name: max(each.about[name] for each in reports) for name in ("n_predictions", "n_labelled", "n_units")}  # fmt: skip
    n_ratings = sum(each.n_ratings for each in reports)
    return own | most | {"n_ratings": n_ratings, "task": MULTILABEL, "n_labels": len(reports)}


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean over the labels that have a value."""
    values = [each.value for each in estimates if each.value is not None]
    first = estimates[0]
    extra = {"n_labels": len(values), "interval_reason": "mean_of_labels"}
    if not values:
        return Estimate(None, first.reason, first.detail, extra=extra, name=first.name, n=0)
    n = max(each.n or 0 for each in estimates)
    return Estimate(sum(values) / len(values), extra=extra, name=first.name, n=n)
