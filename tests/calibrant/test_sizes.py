"""A packed pane stays within its bound and does not grow with the data."""

from __future__ import annotations

import pytest

from calibrant import Pane, PaneSpec
from tests.calibrant.sizes import DATA, LABELS, N_CLASSES, bound, filled

# What docs/state.md promises of ten classes.
LARGEST = dict(zip(LABELS, (1 << 19, 2 << 20, 3 << 20), strict=True))
SPEC = PaneSpec("multiclass", N_CLASSES)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("data", DATA)
def test_a_packed_pane_stays_within_its_bound(data: str, labels: str) -> None:
    size = len(filled(Pane(SPEC), 0, 50_000, data, labels).pack())
    assert size <= bound(SPEC, labels)
    assert size <= LARGEST[labels]


def test_the_bound_that_the_document_names() -> None:
    assert [bound(SPEC, labels) for labels in LABELS] == [855230, 1991054, 3067238]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("labels", LABELS[:2])
@pytest.mark.parametrize("data", DATA)
def test_ten_times_the_predictions_take_less_than_a_tenth_more(data: str, labels: str) -> None:
    pane = filled(Pane(SPEC), 0, 1_000_000, data, labels)
    first = len(pane.pack())
    second = len(filled(pane, 1, 9_000_000, data, labels).pack())
    assert second < 1.1 * first
    assert second <= LARGEST[labels]
