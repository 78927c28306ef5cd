"""A ledger of one site."""

from __future__ import annotations

import pytest

from tests.client.federated import ledger_at


@pytest.fixture
def ledger(tmp_path):
    return ledger_at(tmp_path / "ledger")
