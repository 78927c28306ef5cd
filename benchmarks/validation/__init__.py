"""Simulations of the promises of `docs/guarantees.md`: models whose truth is known, and what is counted in their runs.

`reduced` is the short form, which the tests run on every change; `make guarantees` runs the complete table.
"""

from benchmarks.validation.reduced import PROMISES, Promise, PromiseOutcome, outcome

__all__ = ["PROMISES", "Promise", "PromiseOutcome", "outcome"]
