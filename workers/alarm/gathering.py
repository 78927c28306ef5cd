"""From sealed panes to the alarm's cohorts: a cohort may be longer than a pane, a day of hours say.

What is sealed of it is gathered, and when its last pane is sealed, a later one is, or its time is over without any, the
detectors see it. Each step stands in the commit that seals the pane.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from calibrant.pane import Pane
from workers.alarm.advancing import Writing, advance_cohort
from workers.alarm.detectors import Gathered, tables_of
from workers.alarm.held import Held
from workers.state.commit import Commit
from workers.state.keys import PartitionKeys
from workers.state.registry import ModelConfig


def take_sealed(
    commit: Commit,
    keys: PartitionKeys,
    node: Any,
    config: ModelConfig,
    start_s: int,
    end_s: int,
    panes: Mapping[str, Pane],
) -> None:
    """Let the alarm have what is sealed in a commit: the panes of every slice from `start_s` to `end_s`."""
    writing = _writing(commit, keys, node, config)
    length_s = writing.settings.bucket_s
    bucket = start_s // length_s * length_s
    gathered = writing.held.gathered
    if gathered is not None and gathered.start_s != bucket:
        advance_cohort(writing, gathered.start_s, gathered.cohorts)
        gathered = None
    found = tables_of(writing.settings, bucket, panes)
    whole = (gathered or Gathered(bucket, bucket + length_s, {})).joined(found)
    name = f"{config.key}|{config.generation}"
    if end_s >= whole.end_s:
        advance_cohort(writing, bucket, whole.cohorts)
        commit.drop_fields(keys.gathered, [name])
    else:
        commit.set_fields(keys.gathered, {name: whole.pack()})


def close_gathered(
    node: Any, keys: PartitionKeys, config: ModelConfig, sealed_until_s: float
) -> Commit | None:
    """The commit that lets detectors see a gathered cohort of which no more can come, None where there is none."""
    if config.label_horizon_s is None:
        return None
    commit = Commit(keys)
    writing = _writing(commit, keys, node, config)
    gathered = writing.held.gathered
    if gathered is None or gathered.end_s > sealed_until_s:
        return None
    advance_cohort(writing, gathered.start_s, gathered.cohorts)
    commit.drop_fields(keys.gathered, [f"{config.key}|{config.generation}"])
    return commit


def _writing(commit: Commit, keys: PartitionKeys, node: Any, config: ModelConfig) -> Writing:
    token = token_hex(8).encode()
    return Writing(commit, config, Held(node, keys, config), token, time.time())
