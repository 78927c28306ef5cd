"""Observe mode: the maps of a model, or of all models, are advice; none is promoted, handed out as current or applied."""

from calibrant_server.service.http.errors import ObserveOnly
from calibrant_server.service.settings import Settings
from calibrant_server.workers.store.model_config import OBSERVE, ModelConfig


def is_observed(settings: Settings, config: ModelConfig) -> bool:
    """Return whether maps of this model are only advice."""
    return OBSERVE in (settings.mode, config.mode)


def reject_observed(settings: Settings, config: ModelConfig) -> None:
    """Reject what would change the probabilities that a model's users see.

    Raises
    ------
    ObserveOnly
    """
    if settings.mode == OBSERVE:
        raise ObserveOnly(
            "The service runs in observe mode (CALIBRANT_MODE): maps are advice, and none is promoted or applied. "
            "Read GET calibration-map, or the frozen versions in GET maps."
        )
    if config.mode == OBSERVE:
        raise ObserveOnly(
            f"The model {config.model!r} is in observe mode: maps are advice, and none is promoted or applied. "
            "Set its `mode` to serve to use them."
        )
