"""Means over cases where patients have several: the interval against a second version, and its coverage."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from scipy import stats

import calibrant as cal
from calibrant.accumulators.named_cases import Cases
from calibrant.core.hashing import hash_names
from calibrant.metrics.case_metric import mean_of_shares
from calibrant.segmentation.case_tables import SEVERAL_UNITS


def naive_interval(values: list[float], patients: list[str]) -> tuple[float, float]:
    """The interval of a mean over cases patient by patient: degrees of freedom from the covariance of the residuals, as a matrix."""

    def ends(found: dict[str, list[float]], quantile: float) -> tuple[float, float]:
        n = sum(map(len, found.values()))
        mean = sum(map(sum, found.values())) / n
        variance = sum(
            (sum(own) - mean * len(own)) ** 2 / (1 - len(own) / n) / n**2 for own in found.values()
        )
        return mean - quantile * variance**0.5, mean + quantile * variance**0.5

    by_patient: dict[str, list[float]] = {}
    for value, patient in zip(values, patients, strict=True):
        by_patient.setdefault(patient, []).append(value)
    sizes = np.array([len(own) for own in by_patient.values()])
    n, m = sizes.sum(), len(sizes)
    residuals = np.eye(n) - 1 / n
    of_patient = np.repeat(np.eye(m), sizes, axis=0) / np.sqrt(1 - sizes / n)
    covariance = of_patient.T @ residuals @ of_patient
    degrees = np.trace(covariance) ** 2 / (covariance**2).sum()
    quantile = stats.t.ppf(0.975, degrees)
    low, high = ends(by_patient, quantile)
    means = [np.mean(own) for own in by_patient.values()]
    size = n / m
    for further in (min(means), max(means)):
        # A patient whose number of cases need not be whole: all patients are counted `m` times as often, so that it is.
        more = {f"{k}": own * m for k, own in enumerate(by_patient.values())}
        more["further"] = [further] * round(size * m)
        wider = ends(more, quantile * (1 + 1 / m) ** 0.5)
        low, high = min(low, wider[0]), max(high, wider[1])
    return max(low, 0.0), min(high, 1.0)


def test_cases_of_one_patient_count_together():
    """Scans of one patient are not independent: their interval had none, or was that of as many patients."""
    rng = np.random.default_rng(6)
    score = rng.random(4000)
    labels = (rng.random(4000) < score).astype(int)
    scans = np.arange(4000) // 100
    patients = np.minimum(scans // 2, 12) + (scans > 35)
    pane = cal.Pane.fill(score, labels, units=patients, cases=scans)
    halves = (scans % 2 == 0, scans % 2 == 1)
    merged = sum(
        cal.Pane.fill(score[part], labels[part], units=patients[part], cases=scans[part])
        for part in halves
    )
    for slug in ("dice", "ml1_ece"):
        found = cal.evaluate(score, labels, [slug], units=patients, cases=scans)[slug]
        values = [
            cal.evaluate(score[scans == i], labels[scans == i], [slug], cases=scans[scans == i])[slug].value
            for i in range(40)
        ]  # fmt: skip
        expected = naive_interval(values, [str(patients[100 * i]) for i in range(40)])
        assert found.interval == pytest.approx(expected, abs=1e-9)
        assert "units of several cases" in found.extra["interval_method"]
        for stored in (pane, merged, cal.Pane.from_bytes(merged.to_bytes())):
            assert stored.evaluate([slug])[slug].interval == pytest.approx(expected, abs=1e-6)
    for units, reason in ((scans // 5, "too_few_units"), (scans * 0, "too_few_units")):
        found = cal.evaluate(score, labels, ["dice"], units=units, cases=scans)["dice"]
        assert (found.interval, found.extra["interval_reason"]) == (None, reason)
    unnamed = cal.evaluate(score, labels, ["dice"], cases=scans)
    assert unnamed["dice"].interval is not None


def units_of(pane: cal.Pane) -> dict[str, int]:
    cases = pane["cases"]
    assert isinstance(cases, Cases)
    return cases.units


def test_a_case_of_several_units_is_one_of_its_own():
    batch = [{"cases": ["a"] * 2 + ["b"] * 2, "units": ["x", "y", "x", "x"]}, {"cases": ["b"], "units": ["x"]}]  # fmt: skip
    panes = [
        cal.Pane.fill([0.2] * len(each["cases"]), [1] * len(each["cases"]), **each)
        for each in batch
    ]
    one = panes[0] + panes[1]
    assert units_of(one) == {"a": SEVERAL_UNITS, "b": int(hash_names(["x"])[0])}
    assert units_of(one - panes[0]) == {"b": int(hash_names(["x"])[0])}
    assert units_of(panes[1] + panes[0]) == units_of(one)


def test_intervals_over_cases_hold_where_patients_have_several():
    """95 % intervals of a mean over cases, patients with 1 to 5 cases that are alike: at least 92.5 % contain the true mean."""
    rng = np.random.default_rng(9)
    true = scipy.special.expit(2 + 1.2 * rng.normal(size=10**6)).mean()
    held, runs = 0, 1500
    for _ in range(runs):
        unit = np.repeat(np.arange(20), rng.choice([1, 1, 2, 5], 20))
        z = rng.normal(size=20)[unit] * 0.8**0.5 + rng.normal(size=len(unit)) * 0.2**0.5
        low, high = mean_of_shares(scipy.special.expit(2 + 1.2 * z), unit, 0.95)
        held += low <= true <= high
    assert held / runs > 0.925
