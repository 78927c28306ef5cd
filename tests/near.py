"""Comparison of results that were added in another order."""

from __future__ import annotations

import pytest


class Near:
    """Equal to a nest of numbers within rounding, and to its words exactly."""

    def __init__(self, expected):
        self.expected = expected

    def __repr__(self):
        return repr(self.expected)

    def __eq__(self, found):
        if isinstance(self.expected, dict):
            return self.expected.keys() == found.keys() and all(
                found[k] == Near(v) for k, v in self.expected.items()
            )
        if isinstance(self.expected, list):
            return len(self.expected) == len(found) and all(
                each == Near(v) for each, v in zip(found, self.expected, strict=True)
            )
        if isinstance(self.expected, float):
            return found == pytest.approx(self.expected, rel=1e-9, abs=1e-12)
        return found == self.expected
