"""`python -m benchmarks.science_tables FOLDER`: notions of calibration and stability on public ratings.

FOLDER holds `cifar10h.npz` and `chaosnli_snli.npz` with arrays `counts`, `y_true` and `logits_...`. Nothing is
downloaded or stored. Each number is printed with the published or reference one, once from raw rows (ties split as in the
papers' code) and once from the stored state alone. Stability tables depend on random rows and ratings that the publications
do not give: they agree within the variation over such choices, not to digits.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks import vote_tables
from benchmarks.vote_tables import MODELS, Arrays, batch_of, headed, pane_of, shown
from calibrant import Batch
from calibrant.calibrators.temperature.fit import fit_temperature, fit_temperature_exact
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.stability.curves import stability

Wanted = tuple[str, int, int, tuple[float, ...]]
TRUE_LABELS = {
    "ece": (0.03978, 0.03059),
    "adaptive_ece": (0.03972, 0.02977),
    "ece_sweep": (0.03973, 0.02976),
    "classwise_ece": (0.00884, 0.00733),
    "all_label_ece": (0.00817, 0.00645),
    "nixon_ace": (0.00390, 0.00344),
    "tace": (0.0518, 0.0369),
    "macro_ce": (0.4217, 0.4086),
    "ks": (0.0397, 0.0298),
}
VOTES = {"ent_ce": (0.1554, 0.1584), "dist_ce": (0.0942, 0.0933), "strict_pairs": (0.5595, 0.5846)}
# By NLL, Brier score and ECE; ratings as shares (`raters=mean`), as in the reference.
TEMPERATURES = {
    ("true labels", "nll"): (1.686, 1.748),
    ("true labels", "brier"): (1.963, 1.743),
    ("true labels", "ece"): (1.655, 1.810),
    ("votes", "nll"): (2.075, 2.553),
    ("votes", "brier"): (2.212, 2.105),
}
NOTIONS = ("ece", "rank_cs", "ent_ce", "dist_ce")
BAAN = {
    1: ((0.147, 0.625, 0.310, 0.259), (0.119, 0.596, 0.273, 0.249), (0.141, 0.627, 0.314, 0.261)),
    2: ((0.036, 0.625, 0.208, 0.217), (0.030, 0.596, 0.236, 0.222), (0.020, 0.627, 0.198, 0.214)),
}
# Model, rows, raters; TV of pooled, majority and one rater in per cent of a mean step; ratios of the latter two, and of
# majority's once each is divided by its own estimate from all rows.
STABILITY = (
    ("ResNet-110", 977, 7, (0.225, 0.228, 0.295, 1.02, 1.32, 1.89)),
    ("ResNet-110", 497, 5, (0.339, 0.378, 0.384, 1.11, 1.13, 1.45)),
    ("VGG-16", 977, 7, (0.220, 0.227, 0.284, 1.03, 1.29, 1.89)),
    ("VGG-16", 5000, 47, (0.104, 0.113, 0.135, 1.08, 1.29, 1.84)),
    ("ResNet-110, ambiguous", 977, 7, (0.335, 0.459, 0.542, 1.37, 1.62, 2.32)),
    ("RoBERTa", 977, 7, (0.343, 0.488, 0.546, 1.42, 1.59, 2.00)),
    ("RoBERTa", 497, 5, (0.501, 0.690, 0.762, 1.38, 1.52, 1.80)),
    ("RoBERTa", 200, 4, (0.715, 1.083, 1.163, 1.51, 1.63, 1.76)),
    ("RoBERTa", 200, 50, (0.681, 1.128, 1.264, 1.66, 1.86, 1.99)),
)
KERNEL_STABILITY = (
    ("ResNet-110", 977, 7, (0.157, 0.131, 0.242, 0.84, 1.54)),
    ("VGG-16", 977, 7, (0.162, 0.151, 0.232, 0.93, 1.44)),
    ("RoBERTa", 497, 5, (0.482, 0.663, 0.754, 1.37, 1.56)),
)


def from_both(
    batch: Batch, slugs: Sequence[str], **pane_query: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return results from raw rows with ties split, and from the stored state."""
    pane = pane_of(batch)
    raw = View(pane, PaneQuery(options={"ties": "split"}, **pane_query), batch)
    return compute_metrics(raw, slugs), compute_metrics(View(pane, PaneQuery(**pane_query)), slugs)


def true_labels(data: Arrays) -> Table:
    table = headed(
        "CIFAR-10H votes' images, true labels, 15 bins",
        "measure",
        "model",
        "published",
        "raw rows",
        "state",
        "bound",
    )
    for column, (model, key) in enumerate(MODELS.items()):
        raw, kept = from_both(
            batch_of(data[key], labels=data["y_true"].astype(int)), tuple(TRUE_LABELS)
        )
        for slug, published in TRUE_LABELS.items():
            name = slug if slug != "ece_sweep" else f"ece_sweep ({raw[slug]['bins_chosen']} bins)"
            values = (
                published[column],
                raw[slug]["value"],
                kept[slug]["value"],
                kept[slug].get("error_bound"),
            )
            table.add_row(name, model, *map(shown, values))
    return table


def votes(data: Arrays) -> Table:
    table = headed("CIFAR-10H, all votes", "measure", "model", "published", "raw rows", "state")
    multi_rater = {"VGG-16": 0.0720}
    majority = {"VGG-16": 0.0418}
    for column, (model, key) in enumerate(MODELS.items()):
        batch = batch_of(data[key], label_counts=data["counts"].astype(int))
        raw, kept = from_both(batch, ("ent_ce", "dist_ce", "rank_cs", "ece"))
        for slug in ("ent_ce", "dist_ce"):
            values = (VOTES[slug][column], raw[slug]["value"], kept[slug]["value"])
            table.add_row(slug, model, *map(shown, values))
        strict = (
            VOTES["strict_pairs"][column],
            raw["rank_cs"]["strict_pairs"],
            kept["rank_cs"]["strict_pairs"],
        )
        table.add_row("rank_cs, strict pairs", model, *map(shown, strict))
        pooled = (multi_rater.get(model), raw["ece"]["value"], kept["ece"]["value"])
        table.add_row("ece, pooled", model, *map(shown, pooled))
        raw, kept = from_both(batch, ("ece",), raters="majority")
        consensus = (majority.get(model), raw["ece"]["value"], kept["ece"]["value"])
        table.add_row("ece, majority", model, *map(shown, consensus))
    return table


def temperatures(data: Arrays) -> Table:
    """Print the temperature of each kind of label."""
    table = headed(
        "Temperature, CIFAR-10H", "labels", "by", "model", "reference", "raw rows", "state"
    )
    labels = {
        "true labels": {"labels": data["y_true"].astype(int)},
        "votes": {"label_counts": data["counts"].astype(int)},
    }
    for (kind, objective), reference in TEMPERATURES.items():
        for (model, key), number in zip(MODELS.items(), reference, strict=True):
            batch = batch_of(data[key], **labels[kind])
            exact = fit_temperature_exact(batch, objective=objective, raters="mean")
            kept = fit_temperature(pane_of(batch), objective=objective, raters="mean")
            found = (number, exact["temperature"], kept["temperature"])
            table.add_row(kind, objective, model, *(shown(each, 4) for each in found))
    return table


def baan(data: Arrays) -> Table:
    """Print table 1 of Baan et al.; ECE of 10 bins against the majority label."""
    table = headed(
        "ChaosNLI-SNLI, RoBERTa", "measure", "seed", "T", "published", "raw rows", "state"
    )
    for temperature, seeds in BAAN.items():
        for seed, published in enumerate(seeds):
            logits = data[f"logits_roberta_base_{seed}"].astype(np.float64) / temperature
            batch = batch_of(logits, label_counts=data["counts"].astype(int))
            raw, kept = from_both(batch, NOTIONS, bins=10, raters="majority")
            for slug, number in zip(NOTIONS, published, strict=True):
                values = [shown(v, 3) for v in (number, raw[slug]["value"], kept[slug]["value"])]
                table.add_row(slug, str(seed), str(temperature), *values)
    return table


def drawn(logits: NDArray[Any], counts: NDArray[Any], n: int, raters: int, seed: int = 0) -> Batch:
    """Draw random rows with a number of their ratings, without replacement."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(counts), n, replace=False)
    few = [
        rng.multivariate_hypergeometric(votes, min(raters, int(votes.sum())))
        for votes in counts[rows].astype(int)
    ]
    return batch_of(logits[rows], label_counts=np.stack(few))


def stability_table(
    title: str, slug: str, wanted: Sequence[Wanted], cifar: Arrays, nli: Arrays, n_bootstraps: int
) -> Table:
    """Print published values over ours, from rows and from the state's replicates."""
    columns = (
        "model",
        "N, R",
        "disagreement",
        "from",
        "pooled",
        "majority",
        "one",
        "ratio maj.",
        "ratio one",
        "relative maj.",
    )
    table = headed(title, *columns)
    sources = {name: (cifar[key], cifar["counts"]) for name, key in MODELS.items()}
    # Images on which no class has more than 90 % of the ratings: raters disagree as much as in the reference.
    unsure = cifar["counts"].max(axis=1) <= 0.9 * cifar["counts"].sum(axis=1)
    sources["ResNet-110, ambiguous"] = (
        cifar[MODELS["ResNet-110"]][unsure],
        cifar["counts"][unsure],
    )
    sources["RoBERTa"] = (nli["logits_roberta_base_0"], nli["counts"])
    for model, n, raters, published in wanted:
        batch = drawn(*sources[model], n, raters)
        pane = pane_of(batch)
        views = {"rows": View(pane, PaneQuery(), batch), "state": View(pane, PaneQuery())}
        table.add_row(model, f"{n}, {raters}", "", "published", *(f"{v:.3f}" for v in published))
        for source, view in views.items():
            found = stability(view, slug, n_bootstraps=n_bootstraps)
            steps = [
                100.0 * found["raters"][p]["bootstrap"]["mean"]
                for p in ("pooled", "majority", "single")
            ]
            ratios = [found["ratio"][p] for p in ("majority", "single")]
            spans = [
                f"{r['value']:.2f} [{r['interval'][0]:.2f}, {r['interval'][1]:.2f}]" for r in ratios
            ]
            relative = [
                found["raters"][p]["bootstrap"]["mean"] / found["raters"][p]["full"]
                for p in ("pooled", "majority")
            ]
            numbers = (*(f"{v:.3f}" for v in steps), *spans, f"{relative[1] / relative[0]:.2f}")
            table.add_row("", "", f"{found['disagreement']:.3f}", source, *numbers)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    cifar = np.load(asked.folder / "cifar10h.npz")
    nli = np.load(asked.folder / "chaosnli_snli.npz")
    console = Console(width=150)
    for made in (true_labels(cifar), votes(cifar), temperatures(cifar), baan(nli)):
        console.print(made)
    for vote_table in (vote_tables.temperatures, vote_tables.scaled_errors, vote_tables.few_raters):
        console.print(vote_table(cifar))
    title = "Total variation, per cent of a mean step, nested, 15 bins, 100 bootstraps"
    console.print(stability_table(title, "ece", STABILITY, cifar, nli, 100))
    title = "The same of the kernel error, bandwidth 0.02, 40 bootstraps; of the state in 60 bins"
    console.print(stability_table(title, "kde_ece", KERNEL_STABILITY, cifar, nli, 40))


if __name__ == "__main__":
    main()
