"""All-label ECE: every class's probability of every prediction in one table."""

from __future__ import annotations

from calibrant.metrics.base import GapMetric
from calibrant.metrics.ece import ece_null, ece_statistic

METRIC = GapMetric(
    slug="all_label_ece",
    title="All-label expected calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("classes", "all_labels"),
    formula="Σ_m (W_m/W) |freq(m) - conf(m)|, the probabilities of all labels in one table",
    search_words={"full ECE": "", "multi-class ECE": "", "full multi-class ECE": ""},
    source="Kock, Thielke et al.: full multi-class ECE",
    options=("bins", "binning", "edges", "min_count"),
    statistic=ece_statistic,
    closed_null=ece_null,
    scope="all",
)
