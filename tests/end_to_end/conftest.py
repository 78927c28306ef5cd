"""Deployments for tests of the whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.deployment import Deployment
from tests.end_to_end.science import scanned as scanned
from tests.end_to_end.science import voted as voted


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One process with its private store, as a newcomer gets it; no two files use models of one name, and none kills it."""
    with Deployment(tmp_path_factory.mktemp("embedded")) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A store, two workers and an HTTP process."""
    with Deployment(tmp_path_factory.mktemp("spread"), n_workers=2) as deployment:
        yield deployment
