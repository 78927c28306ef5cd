"""In `make test-adapters` a framework that is missing is a failure: elsewhere the tests that need it are skipped."""

from __future__ import annotations

import os

import pytest


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CALIBRANT_ADAPTERS") != "required" or reporter is None:
        return
    if reporter.stats.get("skipped") or not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
