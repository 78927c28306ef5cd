"""Removal of a deleted model's alarm: detectors, cohort results, episodes and obsolete deliveries."""

from __future__ import annotations

import json
from typing import Any

from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.alarm.episodes import read_episodes
from calibrant_server.workers.alarm.seen_units import units_key
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.keys import PartitionKeys


def remove_alarm(
    node: Any, keys: PartitionKeys, fencing: FencingToken, model: str, generation: str
) -> list[str]:
    """Remove the fields of a generation in shared hashes; return its own keys, to be unlinked. Safe to repeat."""
    episodes = [
        each.id
        for each in read_episodes(node.hgetall(keys.episodes))
        if (f"{each.tenant}/{each.model}", each.generation) == (model, generation)
    ]
    waiting = [
        each.id
        for each in map(WebhookDelivery.from_json, node.hvals(keys.deliveries))
        if (each.model, each.generation) == (model, generation)
    ]
    summary = node.hget(keys.summaries, model)
    commit = Commit(keys)
    if episodes:
        commit.drop_fields(keys.episodes, episodes)
    if waiting:
        commit.drop_fields(keys.deliveries, waiting)
    if summary is not None and json.loads(summary)["generation"] == generation:
        commit.drop_fields(keys.summaries, [model])
    commit.drop_fields(keys.statuses, [model])  # an entry of a later generation is computed again
    commit.drop_fields(keys.partial_cohorts, [f"{model}|{generation}"])
    fencing.send(commit, fencing.new_token())
    detectors = keys.detectors(model, generation)
    names = [name.decode() for name in node.hkeys(detectors) if b"|" in name]
    cohort_results = [keys.cohort_results(model, generation, name) for name in names]
    return [
        *cohort_results,
        units_key(keys, model, generation),
        detectors,
        keys.delivery_log(model, generation),
    ]
