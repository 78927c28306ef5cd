"""Marginal L1 expected calibration error over cases."""

from __future__ import annotations

from calibrant.metrics.case_metric import CaseMetric
from calibrant.segmentation.case_options import CASE_OPTIONS

METRIC = CaseMetric(
    slug="ml1_ece",
    title="Marginal L1 expected calibration error over cases",
    needs=("cases",),
    formula="mean over cases and classes of Σ_m (n_m/N) |freq(m) - conf(m)|",
    search_words={"mL1-ECE": "", "marginal L1 ECE": ""},
    source="Barfoot et al., eq. 2",
    options=("bins", "edges", "composites"),
    own_options=CASE_OPTIONS,
    error="ece",
)
