"""Reads the configurations of models."""

from __future__ import annotations

from typing import Any

from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.model_config import ModelConfig, parsed_config


class ConfigReader:
    """Reader of configurations for threads."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys

    def read(self, model: str) -> ModelConfig | None:
        """Return the configuration of `tenant/model`; None if there is none."""
        text = self._client.hget(self._keys.of_model(model).models, model)
        return None if text is None else parsed_config(text)


def read_configs(client: Any, models_key: str, models: list[str]) -> dict[str, ModelConfig]:
    """Return configurations of models of a partition, for workers; deleted models are omitted."""
    if not models:
        return {}
    return parsed_configs(models, client.hmget(models_key, models))


def parsed_configs(models: list[str], texts: list[bytes | None]) -> dict[str, ModelConfig]:
    """Return the configurations that were read of models; deleted models are omitted."""
    return {
        model: parsed_config(text)
        for model, text in zip(models, texts, strict=True)
        if text is not None
    }
