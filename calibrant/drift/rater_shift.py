"""Attribution of a change to the model or to raters, from detectors of single raters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.core.documents import Result


def rater_or_model(verdicts: Mapping[str, Mapping[str, Any]]) -> Result:
    """Attribute an alarm to the model or to raters.

    When a model drifts, some rater's detector is the first to raise an alarm. The others must therefore not only raise no
    alarm: their labels must not tend in the same direction either.

    Parameters
    ----------
    verdicts : each rater's `status` by name, and whether their labels tend in the direction of the alarms (`leans`;
        default: False); omit raters with too few data

    Returns
    -------
    dict: `title` ("none", "rater shift", "model drift" or "undecided"), `raters` in alarm, `leaning` in that direction without
    alarm, `others`, `text`.

    Examples
    --------
    >>> rater_or_model({"ann": {"status": "alarm"}, "bob": {"status": "ok"}})["title"]
    'rater shift'
    >>> rater_or_model({"ann": {"status": "alarm"}, "bob": {"status": "ok", "leans": True}})["title"]
    'model drift'
    """
    judged = {
        name: each for name, each in verdicts.items() if each["status"] != "insufficient_data"
    }
    alarmed = sorted(name for name, each in judged.items() if each["status"] == "alarm")
    leaning = sorted(
        name for name, each in judged.items() if each.get("leans") and name not in alarmed
    )
    others = sorted(set(judged) - {*alarmed, *leaning})
    if not alarmed:
        title, text = "none", "No rater's labels raise an alarm."
    elif len(judged) < 2:
        title, text = (
            "undecided",
            "Only one rater has enough labels, so a change of the rater cannot be distinguished from one of the model.",
        )
    elif len(alarmed) + len(leaning) > len(others):
        title = "model drift"
        text = "Most raters' labels changed against the model, so the model or its cases changed."
    elif leaning:
        title = "undecided"
        text = "Some other raters' labels tend in the same direction, and some do not: wait for more labels, or ask all raters."
    else:
        title = "rater shift"
        text = (
            "These raters' labels changed against the model while others' did not: ask them first."
        )
    return {"title": title, "raters": alarmed, "leaning": leaning, "others": others, "text": text}
