"""CPU time of the HTTP process for each page, with 100 models in the complete service."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.end_to_end import served
from benchmarks.pages import fill, measured


@pytest.mark.slow
def test_every_view_takes_at_most_a_tenth_of_a_second() -> None:
    """CPU time grows by up to half while other processes use the caches, so the second of two measurements may decide."""
    with served() as service:
        fill(service, 100)
        found = asyncio.run(measured(service, 100))
        if not all(each.is_within_goal for each in found):
            found = asyncio.run(measured(service, 100))
    assert all(each.is_within_goal for each in found), found
