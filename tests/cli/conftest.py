from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command import Finished, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    return runner(capsys)
