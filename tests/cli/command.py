"""Runs the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from calibrant.cli import main


@dataclass(frozen=True)
class Finished:
    """A command that ended: its exit code, and what it printed."""

    code: int
    out: str
    error: str


def runner(capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Return a function that runs the command with its arguments."""

    def run(*arguments: object) -> Finished:
        code = 0
        try:
            main([str(each) for each in arguments])
        except SystemExit as ended:
            if isinstance(ended.code, str):
                return Finished(1, capsys.readouterr().out, ended.code)
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


def predictions(n: int = 300, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits, probabilities and labels of an overconfident model."""
    rng = np.random.default_rng(1)
    logits = 2 * rng.normal(size=(n, n_classes))
    labels = (softmax(logits / 2).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return logits, softmax(logits), labels


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
