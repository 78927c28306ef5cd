"""Attribution of a change to the model or to raters, from detectors of single raters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RATER_SHIFT, MODEL_DRIFT, UNDECIDED, NONE = "rater shift", "model drift", "undecided", "none"


@dataclass(frozen=True)
class Attribution:
    """What changed: `title` is "none", "rater shift", "model drift" or "undecided".

    Attributes
    ----------
    raters : in alarm
    leaning : without alarm, with labels that tend in the same direction
    others : without either
    """

    title: str
    raters: list[str]
    leaning: list[str]
    others: list[str]


def rater_or_model(alarmed: Sequence[str], others: Mapping[str, bool]) -> Attribution:
    """Attribute an alarm to the model or to raters.

    When a model drifts, some rater's detector is the first to raise an alarm. The others must therefore not only raise no
    alarm: their labels must not tend in the same direction either.

    Parameters
    ----------
    alarmed : raters in alarm
    others : for each other rater with enough data, whether their labels tend in the direction of the alarms

    Examples
    --------
    >>> rater_or_model(["ann"], {"bob": False}).title
    'rater shift'
    >>> rater_or_model(["ann"], {"bob": True}).title
    'model drift'
    """
    leaning = sorted(name for name, leans in others.items() if leans)
    quiet = sorted(name for name, leans in others.items() if not leans)
    return Attribution(
        _title(len(alarmed), len(leaning), len(quiet)), sorted(alarmed), leaning, quiet
    )


def _title(n_alarmed: int, n_leaning: int, n_quiet: int) -> str:
    if not n_alarmed:
        return NONE
    if n_alarmed + n_leaning + n_quiet < 2:
        return UNDECIDED
    if n_alarmed + n_leaning > n_quiet:
        return MODEL_DRIFT
    return UNDECIDED if n_leaning else RATER_SHIFT
