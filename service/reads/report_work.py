"""Bound of the work of one request that archives a report: what is left is computed by the next request.

A report reads the panes of its window and of each subgroup completely. Their results are cached in the store, so the same request, sent
again, continues with the others. Data that arrive meanwhile do not change what is computed: it stays valid for the report for some minutes
(`UnfinishedReports`).
"""

from __future__ import annotations

from dataclasses import dataclass

# Milliseconds of CPU of one request. Workers measure what they have done; sending and reading a result is in addition. What follows is
# estimated, on a slow core: 0.6 ms for a complete pane of few rows, or as much as the largest subgroup took.
MAX_WORK, OF_A_RESULT = 650.0, 8.0
OF_A_PANE, OF_A_SUBGROUP = 0.6, 24.0
# The query `drift` reads the panes of the window again; then the page is written.
OF_DRIFT, OF_THE_PAGE = 0.15, 300.0


def work_of_subgroup(n_panes: float) -> float:
    """Return the estimate for a subgroup: reading and packing its complete panes, and its results."""
    return OF_A_SUBGROUP + OF_A_PANE * n_panes


def work_of_the_rest(n_panes: float) -> float:
    """Return the estimate for what follows the window and its subgroups."""
    return OF_DRIFT * n_panes + OF_THE_PAGE


@dataclass
class ReportWork:
    """Work that a request has done, in milliseconds.

    Attributes
    ----------
    largest : of one subgroup
    """

    done: float = 0.0
    largest: float = 0.0

    def has_room(self, estimate: float) -> bool:
        """Whether the request may do so much more; the first of its work is always done."""
        return not self.done or self.done + estimate <= MAX_WORK

    def has_room_for_a_subgroup(self, n_panes: float) -> bool:
        """Whether the request may compute a subgroup of so many panes."""
        return self.has_room(max(work_of_subgroup(n_panes), self.largest))

    def add(self, work: float, is_subgroup: bool) -> None:
        """Count what was computed, and its result."""
        work += OF_A_RESULT
        self.done += work
        self.largest = max(self.largest, work) if is_subgroup else self.largest
