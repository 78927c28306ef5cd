"""Results that another machine may compute in another grouping: sums differ in their last digits, words do not."""

import pytest

__all__ = ["Near"]


class Near:
    """Equal to a nest of numbers within rounding, and to its words exactly. After a comparison, it shows the first difference."""

    def __init__(self, expected):
        self.expected = expected
        self.difference = ""

    def __repr__(self):
        return self.difference or repr(self.expected)

    def __eq__(self, found):
        self.difference = _difference(found, self.expected, "")
        return not self.difference


def _difference(found, expected, path):
    """Return path and values of the first difference; empty: none."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        parts = (_difference(found[name], expected[name], f"{path}/{name}") for name in expected)
        return next(filter(None, parts), "")
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(found, expected, strict=True))
        return next(filter(None, (_difference(*pair, f"{path}/{i}") for i, pair in pairs)), "")
    if isinstance(expected, float):
        expected = pytest.approx(expected, rel=1e-9, abs=1e-12)
    return "" if found == expected else f"at {path}: {found!r}, expected {expected!r}"
