"""The recommendation where no update of the model is due: wait for labels, look for missing data, or nothing."""

from __future__ import annotations

from calibrant.core.action_texts import ACTIONS, MAX_NAMED
from calibrant.core.actions import Advice, read_drift, recommendation
from calibrant.drift.calibration import GOOD, UNKNOWN
from calibrant.drift.words import NO_LABELS, NO_PREDICTIONS, CalibrationState
from calibrant_server.workers.alarm.words_of import ModelWords
from calibrant_server.workers.store.model_config import ModelConfig

NOTHING_YET = "Send predictions: there are none yet."
NO_DATA = {
    NO_PREDICTIONS: "Check the program that sends predictions: none arrived recently.",
    NO_LABELS: "Check the source of the labels: none arrived for recent predictions.",
}


def advice_without_update(
    words: ModelWords, config: ModelConfig, has_predictions: bool = True
) -> Advice:
    """Return what to do about a model that neither changed nor is off as a whole."""
    found = (
        _advice(words, config)
        if has_predictions
        else recommendation("collect_more", NOTHING_YET, {})
    )
    if config.label_horizon_s is not None:
        return found
    declare = f"To detect changes, declare a label horizon: `calibrant set {config.model} label_horizon=P7D`."
    return {**found, "reason": f"{found['reason']} {declare}"}


def _advice(words: ModelWords, config: ModelConfig) -> Advice:
    calibration, change = words.calibration, words.change
    if calibration.slices_off:
        names = sorted(calibration.slices_off)
        found = recommendation(None, _of_slices(names), {"slices": {"affected": names[:MAX_NAMED]}})
        is_class = names[0].startswith("class:")
        return found if is_class else {**found, "next": read_drift(config.model, names[0])}
    if change.word in NO_DATA:
        return recommendation("collect_more", NO_DATA[change.word], {})
    if calibration.word == GOOD and calibration.judgement.word in (GOOD, UNKNOWN):
        return recommendation("none", ACTIONS["none"], {})
    return recommendation("collect_more", f"Change nothing yet: {_what_decides(calibration)}.", {})


def _of_slices(names: list[str]) -> str:
    if len(names) == 1:
        return f"Only {names[0]} is off: read its own recommendation."
    return f"Only {len(names)} slices are off: read the recommendation of each, {names[0]} first."


def _what_decides(calibration: CalibrationState) -> str:
    found = calibration.judgement
    if found.word not in (UNKNOWN, calibration.word):
        return "the next labels have to confirm it"
    return calibration.decides
