"""`python -m benchmarks.alarm_cohort [--models N] [--slices N]`: time of one core to advance all models by a day.

Detectors of each model are read from a real store, advanced by a sealed day of all rows and of each slice, and written
back in one commit per model, as a worker does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant_server.workers.alarm.detector_advance import take_sealed
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.model_config import ModelConfig

DAY_S = 86_400
N_WARM, N_TIMED = 2, 3


def panes(rng: np.random.Generator, n_slices: int) -> dict[str, Pane]:
    """Return a day of all rows and of each slice."""
    spec = ModelConfig("t", "m", "binary", 2).spec()
    found = {}
    for slice_ in ("", *(f"site:{i}" for i in range(n_slices))):
        score = rng.beta(0.7, 2.2, 50 if slice_ else 50 * n_slices)
        label = (rng.random(len(score)) < score).astype(int)
        pane = Pane(spec)
        pane.fill_batch(
            Batch.from_columns({"confidences": score, "labels": label}, task="binary").batch
        )
        found[slice_] = pane
    return found


def seal(
    store: Store, config: ModelConfig, chain: FencingToken, day: int, found: dict[str, Pane]
) -> None:
    """Advance one model by one day."""
    keys = store.keys.of_model(config.key)
    commit, start_s = Commit(keys), day * DAY_S
    take_sealed(commit, keys, store.node(keys.partition), config, start_s, start_s + DAY_S, found)
    chain.send(commit, chain.new_token())


def main() -> None:
    """Print seconds of wall and of this process's CPU for a day of all models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--slices", type=int, default=20)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    days = [panes(rng, asked.slices) for _ in range(N_WARM + N_TIMED)]
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "store") as url:
        store = Store(EngineSettings(redis_url=url, data_dir=Path(folder)))
        configs = [
            ModelConfig("t", f"m{i}", "binary", 2, generation="g", label_horizon_s=DAY_S)
            for i in range(asked.models)
        ]
        chains = {
            n: FencingToken(store, store.keys.partition(n)) for n in range(store.keys.partitions)
        }
        for chain in chains.values():
            chain.reload()
        for day, found in enumerate(days):
            wall, cpu = time.perf_counter(), time.process_time()
            for config in configs:
                seal(store, config, chains[store.keys.partition_of(config.key)], day, found)
            took, used = time.perf_counter() - wall, time.process_time() - cpu
            if day >= N_WARM:
                n = asked.models * (asked.slices + 1)
                print(
                    f"{n} detectors: {took:.1f} s ({used:.1f} s of this process), {1e3 * took / n:.2f} ms each"
                )
        store.close()


if __name__ == "__main__":
    main()
