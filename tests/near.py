"""Results that another machine may compute in another grouping: sums differ in their last digits, words do not."""

import pytest

__all__ = ["Near"]


class Near:
    """Equal to a nest of numbers within rounding, and to its words exactly. After a comparison, it shows the first difference."""

    def __init__(self, expected, rel=1e-9):
        self.expected = expected
        self.rel = rel
        self.difference = ""

    def __repr__(self):
        return self.difference or repr(self.expected)

    def __eq__(self, found):
        self.difference = _difference(found, self.expected, "", self.rel)
        return not self.difference


def _difference(found, expected, path, rel):
    """Return path and values of the first difference; empty: none."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        parts = (
            _difference(found[name], expected[name], f"{path}/{name}", rel) for name in expected
        )
        return next(filter(None, parts), "")
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(found, expected, strict=True))
        parts = (_difference(*pair, f"{path}/{i}", rel) for i, pair in pairs)
        return next(filter(None, parts), "")
    if isinstance(expected, float):
        expected = pytest.approx(expected, rel=rel, abs=1e-12)
    return "" if found == expected else f"at {path}: {found!r}, expected {expected!r}"
