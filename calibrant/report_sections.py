"""Sections of a report in addition to metrics, reliability and temperature: one function per section.

Each computes from the raw rows what an endpoint computes from a window's state.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calibrant.calibrators.temperature.surface_report import surface_report
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.view import NoResultError, View
from calibrant.estimators.roc_curve import POINTS
from calibrant.metrics import compute_metrics, requested, view_for
from calibrant.peers.peer_comparison import compared
from calibrant.raters.alpha_calibration import compare_calibrations
from calibrant.raters.concentration import fit_concentration
from calibrant.raters.disagreement_report import disagreement_report
from calibrant.raters.posterior import posterior_epistemic_loss
from calibrant.results.roc import roc_curve
from calibrant.results.uncertainty import uncertainty_of
from calibrant.segmentation.case_report import case_reliability, cases_of, sensitivity
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from calibrant.segmentation.consensus import consensus_of
from calibrant.segmentation.histogram_report import histogram_report
from calibrant.segmentation.per_case_metrics import by_case
from calibrant.segmentation.weighted_loss import LossWeights, training_losses
from calibrant.stability.by_case import stability_by_case
from calibrant.stability.curves import stability_report

MAX_FURTHER_RATINGS = 5
# Of stability curves: half a second and 80 MB.
MAX_RATINGS = 3_000
# Of those of independent subsets, each drawn separately: they take nine times as long and as much memory.
MAX_RATINGS_OF_INDEPENDENT = 200
# Of such curves of each case, whose subsets are smaller.
MAX_RATINGS_OF_CASES = 200_000
PARAMETERS = (
    *("include", "metric", "subsets", "frequency_bins", "case", "points", "sensitivity", "packed"),
    *("loss_weights", "gradients", "compat"),
)
# Under which `params` holds the classes of named raters.
RATERS = "named_raters"
Section = Callable[[View, Mapping[str, Any]], Result]


def requested_sections(
    view: View, names: Iterable[str], params: Mapping[str, Any]
) -> dict[str, Result]:
    """Return the requested sections by name; one that the rows cannot give has a `reason` and a `detail`.

    Parameters
    ----------
    view : with raw rows
    names : of `SECTIONS`
    params : `PARAMETERS` by name, if they are requested

    Raises
    ------
    CalibrationInputError
        A section that there is not, or a parameter outside its range.
    """
    return {name: _section(chosen(name), view, params) for name in dict.fromkeys(names)}


def chosen(name: str) -> Section:
    """The section of a name.

    Raises
    ------
    CalibrationInputError
        There is none; the known ones are listed.
    """
    if name not in SECTIONS:
        detail = f"{name[:60]!r} cannot be included; known are {', '.join(SECTIONS)}"
        raise CalibrationInputError.at("/include", "one_of", detail)
    return SECTIONS[name]


def _section(section: Section, view: View, params: Mapping[str, Any]) -> Result:
    try:
        return section(view, params)
    except NoResultError as rejection:
        return {"reason": rejection.reason, "detail": rejection.detail}


def _alpha_calibration(view: View, params: Mapping[str, Any]) -> Result:
    return compare_calibrations(_batch(view), bins=view.pane_query.bins, ci=view.pane_query.ci)


def _by_case(view: View, params: Mapping[str, Any]) -> Result:
    request = requested([params.get("metric") or "ece"], "/metric")[0]
    return by_case(view_for(view, request), request.metric.slug)


def _cases(view: View, params: Mapping[str, Any]) -> Result:
    found = cases_of(view, params.get("frequency_bins"))
    if params.get("sensitivity") and not found.get("reason"):
        found["sensitivity"] = sensitivity(view)
    if params.get("case") is None:
        return found
    try:
        return found | {"case": case_reliability(view, str(params["case"]))}
    except NoResultError as rejection:
        raise CalibrationInputError.at("/case", rejection.reason, rejection.detail) from rejection


def _compat(view: View, params: Mapping[str, Any]) -> Result:
    return compared(view, params.get("compat"))


def _confidence_histogram(view: View, params: Mapping[str, Any]) -> Result:
    histogram = ConfidenceHistogram.of_batch(_batch(view), raters=view.pane_query.raters)
    least = view.pane_query.min_count
    found = histogram_report(
        histogram, bins=view.pane_query.bins, binning=view.pane_query.binning, least=least
    )
    if not params.get("packed"):
        return found
    return found | {"packed": base64.b64encode(histogram.pack()).decode()}


def _consensus(view: View, params: Mapping[str, Any]) -> Result:
    return consensus_of(view, params.get(RATERS))


def _disagreement(view: View, params: Mapping[str, Any]) -> Result:
    return disagreement_report(view)


def _losses(view: View, params: Mapping[str, Any]) -> Result:
    return training_losses(
        view, LossWeights.read(params.get("loss_weights")), params.get("gradients")
    )


def _posterior(view: View, params: Mapping[str, Any]) -> Result:
    """Epistemic loss before, and expected after further ratings under the fitted concentration."""
    losses = compute_metrics(view, ["epistemic_loss", "irreducible_loss"])
    epistemic, irreducible = (
        losses[slug]["value"] for slug in ("epistemic_loss", "irreducible_loss")
    )
    if epistemic is None or irreducible is None:
        raise NoResultError(
            losses["epistemic_loss"].get("reason", "no_data"), "the epistemic loss is not known"
        )
    concentration = fit_concentration(view.pane["concentration"], ci=view.pane_query.ci)
    after = [
        {
            "n_votes": n,
            "epistemic_loss": posterior_epistemic_loss(
                epistemic, irreducible, concentration.value, n
            ),
        }
        for n in range(1, MAX_FURTHER_RATINGS + 1)
    ]
    return {
        "concentration": concentration.value,
        "epistemic_loss": epistemic,
        "irreducible_loss": irreducible,
        "after_votes": after,
    }


def _roc(view: View, params: Mapping[str, Any]) -> Result:
    return roc_curve(view, params.get("points") or POINTS).to_dict()


def _stability(view: View, params: Mapping[str, Any]) -> Result:
    request = requested([params.get("metric") or "ece"], "/metric")[0]
    view, subsets = view_for(view, request), params.get("subsets") or "nested"
    most = MAX_RATINGS if subsets == "nested" else MAX_RATINGS_OF_INDEPENDENT
    slug = request.metric.slug
    return stability_report(view, slug, subsets=subsets, max_ratings=most, one_by_one=False)


def _stability_by_case(view: View, params: Mapping[str, Any]) -> Result:
    request = requested([params.get("metric") or "ece"], "/metric")[0]
    view, subsets = view_for(view, request), params.get("subsets") or "nested"
    slug = request.metric.slug
    return stability_by_case(view, slug, subsets=subsets, max_ratings=MAX_RATINGS_OF_CASES)


def _temperature_surface(view: View, params: Mapping[str, Any]) -> Result:
    return surface_report(view)


def _uncertainty(view: View, params: Mapping[str, Any]) -> Result:
    return uncertainty_of(view).to_dict()


def _batch(view: View) -> Any:
    assert view.batch_sums is not None
    return view.batch_sums.complete_batch


SECTIONS: dict[str, Section] = {
    "alpha_calibration": _alpha_calibration,
    "by_case": _by_case,
    "cases": _cases,
    "compat": _compat,
    "confidence_histogram": _confidence_histogram,
    "consensus": _consensus,
    "disagreement": _disagreement,
    "losses": _losses,
    "posterior": _posterior,
    "roc": _roc,
    "stability": _stability,
    "stability_by_case": _stability_by_case,
    "temperature_surface": _temperature_surface,
    "uncertainty": _uncertainty,
}
