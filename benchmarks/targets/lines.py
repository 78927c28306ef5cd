"""Lines of the table: what is measured, what it was before version two, and its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes
    ----------
    what : measured, with its unit
    before : of version one, as published
    target : None where a figure is stated without one
    more_is_better : for rates; the target of others is a maximum
    """

    what: str
    before: str
    target: float | None
    more_is_better: bool = False

    def over_target(self, measured: float) -> float | None:
        """Return how many times the target is missed, or reached if below 1."""
        if self.target is None:
            return None
        return self.target / measured if self.more_is_better else measured / self.target

    def cells(self, measured: float) -> tuple[str, ...]:
        """Return the cells of the table."""
        ratio = self.over_target(measured)
        target = "-" if self.target is None else number(self.target)
        reached = ("stated", "-") if ratio is None else (_verdict(ratio), f"{ratio:.2f}")
        return self.what, self.before, target, number(measured), reached[1], reached[0]


def _verdict(ratio: float) -> str:
    return "reached" if ratio <= 1.0 else "missed"


def number(value: float) -> str:
    """Write three digits.

    Examples
    --------
    >>> number(1234.5), number(0.01234)
    ('1,234', '0.0123')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


FORM = "10,000 rows, 10 classes, 5 raters: CPU over `orjson.loads` and `asarray`"
ARROW = "Arrow, float32, 10 classes, 5 raters: CPU µs per prediction"
FILLING = "filling alone, K = 10: CPU µs per row"
CHANGED = "24 panes, one changed: CPU ms, 99th percentile"
COLD = "720 panes, cold: CPU ms, median"
LINES: Mapping[str, Line] = {
    "json": Line(f"JSON, {FORM}", "4.4 to 6.6", 1.8),
    "ndjson": Line(f"NDJSON, {FORM}", "4.0 to 5.3", 2.0),
    "arrow": Line(f"{ARROW}; equal ratings, no ids", "2.33, a prototype", 2.0),
    "arrow_rate": Line("the same: predictions per second on two cores", "0.86 M", 1e6, True),
    "arrow_weights": Line(f"{ARROW}; with weights", "-", None),
    "arrow_ragged": Line(f"{ARROW}; 1 to 9 ratings", "-", None),
    "arrow_ids": Line(f"{ARROW}; with ids, and labelled", "-", None),
    "fill_10000": Line(f"{FILLING}, 10,000 rows", "6.5", 1.4),
    "fill_100": Line(f"{FILLING}, 100 rows", "60", 2.0),
    "fill_1": Line(f"{FILLING}, one row", "5,700", 20.0),
    "fill_k1000": Line("filling alone, K = 1,000: CPU µs per row, 1,000 rows", "285", 40.0),
    "one_client": Line("one-row requests per CPU second, one client", "50", 1000.0, True),
    "many_clients": Line("one-row requests per CPU second, 64 clients", "65", 5000.0, True),
    "slices": Line("500 rows over 51 panes: CPU ms per batch, mean", "1,200", 15.0),
    "rest_float32": Line("100 rows at rest, K = 10, exact in float32: kB", "48", 6.0),
    "rest_float64": Line("100 rows at rest, K = 10, float64: kB", "48", 11.0),
    "many_models": Line("1,000 models of one row: growth of memory, MB", "5,000", 100.0),
    "metrics": Line(f"GET metrics, {CHANGED}", "109", 15.0),
    "metrics_cold": Line(f"GET metrics, {COLD}", "4,600", 50.0),
    "ece": Line(f"GET metrics?metrics=ece, {CHANGED}", "40", 5.0),
    "temperature": Line(f"GET temperature, {CHANGED}", "83", 10.0),
    "unchanged": Line("304: CPU ms, 99th percentile", "4.6", 1.0),
    "labels_by_id": Line("labels by id: rate over that of plain ingestion", "0.24", 0.7, True),
    "temperature_fit": Line(
        "T from state: times faster than scikit-learn's fit, n = 1,000,000", "72", 200.0, True
    ),
    "idle": Line("10,000 models with 21 scopes, idle: CPU s a minute", "28", 1.0),
}


def table(measured: Mapping[str, float], title: str) -> Table:
    """Return the table of all lines; one without a figure was not measured."""
    shown = Table("what", "before", "target", "measured", "over target", "", title=title)
    for name, line in LINES.items():
        if name in measured:
            shown.add_row(*line.cells(measured[name]))
        else:
            shown.add_row(line.what, line.before, "", "not measured", "", "")
    return shown


def markdown(measured: Mapping[str, float]) -> str:
    """Return the table for the documentation."""
    head = "| what | before | target | measured | over target | |\n|---|---|---|---|---|---|"
    rows = [
        f"| {' | '.join(line.cells(measured[name]))} |"
        for name, line in LINES.items()
        if name in measured
    ]
    return "\n".join([head, *rows])
