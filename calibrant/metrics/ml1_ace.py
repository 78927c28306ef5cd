"""Marginal L1 average calibration error over cases."""

from __future__ import annotations

from calibrant.metrics.case_metric import CaseMetric
from calibrant.segmentation.case_options import CASE_OPTIONS

METRIC = CaseMetric(
    slug="ml1_ace",
    title="Marginal L1 average calibration error over cases",
    needs=("cases",),
    formula="mean over cases and classes of (1/|B|) Σ_{m in B} |freq(m) - conf(m)|",
    search_words={
        "mL1-ACE": "",
        "marginal L1 ACE": "",
        "hL1-ACE": "membership=hard in brackets",
        "sL1-ACE": "membership=soft in brackets",
    },
    source="Barfoot et al., eq. 3, over non-empty bins as in their code; as printed in `ace_all_bins`",
    options=("bins", "edges", "composites"),
    own_options=CASE_OPTIONS,
    error="ace",
    also=("ace_all_bins",),
)
