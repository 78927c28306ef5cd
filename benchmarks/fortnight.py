"""`python -m benchmarks.fortnight [--seed 0]`: the words of thirty real classifiers after a fortnight, through the service.

Five kinds of scikit-learn models on digits, wine and breast cancer, two of each, get 200 rows a day, with labels two days late. From day
7 on, the features of a fifth of the models are noised. The exit status is 1 if fewer than 28 words are right, or one is wrong beyond repair:
`good` with a true error above the tolerance, or `changed` without a change.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from calibrant_server.service.app import create_app
from calibrant_server.service.settings import Settings

Floats = NDArray[np.float64]
N_DAYS, A_DAY, LATE, CHANGED_AT, BINS = 14, 200, 2, 7, 15
MIN_RIGHT, TOLERANCE = 28, 0.02
NOISE = 1.2  # standard deviations of each feature
WAIT_S = 120.0
N_TRUE = 40_000


@dataclass(frozen=True)
class Deployed:
    """A model with the rows that it is asked about.

    Attributes
    ----------
    features, labels : held-out rows, from which days are drawn
    scale : standard deviation of each feature
    changes : whether features are noised from day 7 on
    """

    name: str
    model: Any
    features: Floats
    labels: NDArray[np.int64]
    scale: Floats
    changes: bool

    def draw(self, rng: np.random.Generator, n: int, noised: bool) -> tuple[Floats, NDArray[np.int64]]:  # fmt: skip
        """Return probabilities and labels of some rows."""
        chosen = rng.integers(len(self.labels), size=n)
        rows = self.features[chosen]
        if noised:
            rows = rows + NOISE * self.scale * rng.normal(size=rows.shape)
        return self.model.predict_proba(rows), self.labels[chosen]

    def true_error(self, rng: np.random.Generator, noised: float) -> float:
        """Return the binned error of many rows, a share of them noised."""
        n = int(N_TRUE * noised)
        sizes = ((N_TRUE - n, False), (n, True))
        parts = [self.draw(rng, size, is_noised) for size, is_noised in sizes if size]
        p, y = (np.concatenate(each) for each in zip(*parts, strict=True))
        top = p.argmax(axis=1) if p.shape[1] > 2 else np.ones(len(p), int)
        score, correct = p[np.arange(len(p)), top], (top == y).astype(float)
        place = np.clip(np.ceil(score * BINS).astype(int) - 1, 0, BINS - 1)
        gaps = np.bincount(place, correct - score, BINS)
        return float(np.abs(gaps).sum() / len(p))


@dataclass(frozen=True)
class Verdict:
    """The words of a model with what is true.

    Attributes
    ----------
    error : true error of the cohorts that `calibration` is about
    growth : of the true error by the change; 0 without one
    """

    name: str
    error: float
    growth: float
    found: dict[str, Any]

    @property
    def is_impossible(self) -> bool:
        """Whether a word is wrong beyond repair."""
        good = self.found["calibration"]["word"] == "good" and self.error > TOLERANCE
        return good or (self.found["change"]["word"] == "changed" and self.growth <= 0.0)

    @property
    def is_right(self) -> bool:
        """Whether both words are right: `unknown` if its limit holds (with a tenth), `not_armed` if such a growth would not show.

        The limit of an `unknown` that waits for a second cohort is the lower one, "at least".
        """
        calibration, change = self.found["calibration"], self.found["change"]
        limit = calibration["value"]
        waits_to_be_off = "at least" in calibration["sentence"]
        words = {
            "off": self.error > TOLERANCE,
            "good": self.error <= TOLERANCE,
            "unknown": limit is not None
            and (limit <= 1.1 * self.error if waits_to_be_off else self.error <= 1.1 * limit),
        }
        least = change["smallest_change"] or 1.0
        is_seen = change["word"] == "changed" or self.growth <= 0.0
        is_small = change["word"] == "not_armed" and self.growth < least
        return words[calibration["word"]] and (is_seen or is_small) and not self.is_impossible


def deployed(seed: int) -> list[Deployed]:
    """Return thirty fitted models; every fifth one changes."""
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = {"digits": load_digits, "wine": load_wine, "tumour": load_breast_cancer}
    kinds = {
        "logreg": lambda: LogisticRegression(max_iter=2000),
        "rf": lambda: RandomForestClassifier(100, random_state=seed),
        "nb": GaussianNB,
        "mlp": lambda: MLPClassifier(max_iter=1000, random_state=seed),
        "knn": KNeighborsClassifier,
    }
    found: list[Deployed] = []
    for version in (1, 2):
        for name, load in data.items():
            x, y = load(return_X_y=True)
            split = train_test_split(
                x, y, test_size=0.5, random_state=10 * seed + version, stratify=y
            )
            for kind, make in kinds.items():
                model = make_pipeline(StandardScaler(), make()).fit(split[0], split[2])
                n = len(found)
                found.append(
                    Deployed(f"{name}-{kind}-v{version}", model, split[1], split[3], split[0].std(axis=0), n % 5 == (n // 5 + seed) % 5)
                )  # fmt: skip
    return found


async def _post(http: httpx.AsyncClient, each: Deployed, rng: np.random.Generator) -> None:
    """Send a fortnight of predictions, and the labels that are known by now."""
    path = f"/v1/models/{each.name}"
    binary = len(set(each.labels)) == 2
    declared: dict[str, Any] = {"task": "binary" if binary else "multiclass", "pane": "P1D", "label_horizon": f"P{LATE}D"}  # fmt: skip
    declared |= {} if binary else {"classes": int(each.labels.max()) + 1}
    (await http.put(path, json=declared)).raise_for_status()
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(N_DAYS):
        p, y = each.draw(rng, A_DAY, each.changes and day >= CHANGED_AT)
        at = (today - timedelta(days=N_DAYS - day)).isoformat()
        ids = [f"{day}.{i}" for i in range(A_DAY)]
        body: dict[str, Any] = {"ids": ids, "event_times": [at] * A_DAY, "batch_id": f"p{day}"}
        body |= {"confidences": p[:, 1].tolist()} if binary else {"probabilities": p.tolist()}
        if day < N_DAYS - LATE:  # labels first, so that no day is sealed without them
            labels = {"ids": ids, "labels": [[int(v)] for v in y], "raters": [["outcome"]] * A_DAY, "batch_id": f"l{day}"}  # fmt: skip
            (await http.post(f"{path}/labels", json=labels)).raise_for_status()
        sent = await http.post(f"{path}/predictions", json=body, headers={"Prefer": "wait=60"})
        sent.raise_for_status()


async def _verdict(http: httpx.AsyncClient, name: str) -> dict[str, Any]:
    """Return the words once every due cohort is sealed."""
    for _ in range(int(WAIT_S / 0.5)):
        history = (await http.get(f"/v1/models/{name}/drift/history")).json()
        if len(history.get("cohorts", [])) >= N_DAYS - LATE:
            break
        await asyncio.sleep(0.5)
    found: dict[str, Any] = (await http.get(f"/v1/models/{name}/drift")).json()
    return found


async def _fortnight(seed: int, directory: Path) -> list[Verdict]:
    app = create_app(Settings(data_dir=directory, log_requests=False))
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=120) as http,
    ):
        models, rng = deployed(seed), np.random.default_rng(seed)
        for each in models:
            await _post(http, each, rng)
        return [await _judged(http, each, rng) for each in models]


async def _judged(http: httpx.AsyncClient, each: Deployed, rng: np.random.Generator) -> Verdict:
    found = await _verdict(http, each.name)
    growth = each.true_error(rng, 1.0) - each.true_error(rng, 0.0) if each.changes else 0.0
    share = 1.0 - CHANGED_AT / (N_DAYS - LATE) if each.changes else 0.0
    if found["change"]["word"] == "changed":
        share = 1.0
    return Verdict(each.name, each.true_error(rng, share), growth, found)


def fortnight(seed: int) -> list[Verdict]:
    """Return the verdicts of thirty models after a fortnight."""
    with TemporaryDirectory() as directory:
        return asyncio.run(_fortnight(seed, Path(directory)))


def main(arguments: list[str]) -> int:
    """Print a row per model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    found = fortnight(parser.parse_args(arguments).seed)
    for each in found:
        words = [each.found[name]["word"] for name in ("calibration", "change")]
        mark = "right" if each.is_right else "IMPOSSIBLE" if each.is_impossible else "wrong"
        print(f"{each.name:18} {each.growth:+.3f} {each.error:.3f} {words[0]:8} {words[1]:10} {mark}")  # fmt: skip
        print("   ", each.found["calibration"]["sentence"], each.found["change"]["sentence"])
    right, impossible = sum(e.is_right for e in found), sum(e.is_impossible for e in found)
    print(f"{right} of {len(found)} right (at least {MIN_RIGHT}), {impossible} impossible")
    return int(right < MIN_RIGHT or impossible > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
