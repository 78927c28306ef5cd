"""Marginal L1 maximum calibration error over cases."""

from __future__ import annotations

from calibrant.metrics.case_metric import CaseMetric
from calibrant.segmentation.case_options import CASE_OPTIONS

METRIC = CaseMetric(
    slug="ml1_mce",
    title="Marginal L1 maximum calibration error over cases",
    needs=("cases",),
    formula="mean over cases and classes of max_m |freq(m) - conf(m)|",
    search_words={"mL1-MCE": "", "marginal L1 MCE": ""},
    source="Barfoot et al., eq. 4",
    options=("bins", "edges", "composites"),
    own_options=CASE_OPTIONS,
    error="mce",
)
