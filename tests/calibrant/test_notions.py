"""The notions of calibration equal a naive second version on raw rows."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch
from calibrant.core.query import PaneQuery
from tests.calibrant import notions_reference as naive
from tests.calibrant.notions import (
    asked,
    batch_of,
    policies,
    value,
)
from tests.calibrant.reference import rows_of


@policies
@pytest.mark.parametrize("seed", [0, 1])
def test_measures_of_scores_equal_the_naive_version(raters: str, seed: int) -> None:
    batch = batch_of(seed)
    rows = naive.samples(rows_of(batch), "top_label", raters)
    pane_query = PaneQuery(raters=raters, bins=10)
    expected = {
        "ks": naive.ks(rows),
        "kuiper": naive.kuiper(rows),
        "macro_ce": naive.macro_ce(rows),
        "overconfidence_error": naive.overconfidence(rows, 10, "right"),
        "ece_sweep": naive.sweep(rows, "together")[0],
        **naive.corp(rows, "brier"),
    }
    found = asked(batch, tuple(expected), pane_query=pane_query)
    for slug, number in expected.items():
        assert found[slug]["value"] == pytest.approx(number, abs=1e-11), slug
    assert found["ece_sweep"]["bins_chosen"] == naive.sweep(rows, "together")[1]


@policies
@pytest.mark.parametrize("ties", ["together", "split"])
def test_sweep_and_ranges_equal_the_naive_version(raters: str, ties: str) -> None:
    for seed in range(6):
        batch = batch_of(seed, n=24 + seed)
        rows = naive.samples(rows_of(batch), "top_label", raters)
        pane_query = PaneQuery(raters=raters, bins=4)
        for norm in (1, 2):
            found = asked(batch, "ece_sweep", pane_query=pane_query, ties=ties, norm=norm)[
                "ece_sweep"
            ]
            number, bins = naive.sweep(rows, ties, norm)
            assert (found["value"], found["bins_chosen"]) == (
                pytest.approx(number, abs=1e-11),
                bins,
            )
        ace = value(batch, "nixon_ace", pane_query=pane_query, ties=ties)
        assert ace == pytest.approx(naive.nixon(rows_of(batch), raters, 4, ties), abs=1e-11)
        tace = value(batch, "tace", pane_query=pane_query, ties=ties, epsilon=0.2)
        assert tace == pytest.approx(naive.nixon(rows_of(batch), raters, 4, ties, 0.2), abs=1e-11)


@policies
def test_smooth_ece_solves_its_own_equation(raters: str) -> None:
    batch = batch_of(3, n=6)
    rows = naive.samples(rows_of(batch), "top_label", raters)
    found = value(batch, "smooth_ece", pane_query=PaneQuery(raters=raters))
    assert naive.smooth_at(rows, found) == pytest.approx(found, abs=1e-6)


@policies
@pytest.mark.parametrize("leave", ["label", "instance"])
@pytest.mark.parametrize("bandwidth", [0.02, 0.2])
def test_kernel_error_equals_the_naive_version(raters: str, leave: str, bandwidth: float) -> None:
    rng = np.random.default_rng(8)
    z = rng.dirichlet(np.ones(3), 25)
    z[:2] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    counts = rng.multinomial(rng.integers(1, 5, 25), z)
    batch = Batch.from_columns({"probabilities": z, "label_counts": counts}).batch
    found = value(
        batch, "kde_ece", pane_query=PaneQuery(raters=raters), leave=leave, bandwidth=bandwidth
    )
    assert found == pytest.approx(naive.kde(rows_of(batch), raters, leave, bandwidth), abs=1e-10)


@policies
def test_error_of_densities_equals_the_naive_version(raters: str) -> None:
    batch = batch_of(9, n=16)
    rows = naive.samples(rows_of(batch), "top_label", raters)
    found = value(batch, "zhang_kde_ece", pane_query=PaneQuery(raters=raters))
    assert found == pytest.approx(naive.density_error(rows, 16), abs=2e-6)


@pytest.mark.parametrize(
    ("options", "how"),
    [({"bandwidth_from": "correct"}, {"of": "correct"}), ({"kernel_sd": 0.07}, {"sd": 0.07})],
)
def test_error_of_densities_with_the_published_or_a_given_bandwidth(options, how) -> None:  # type: ignore[no-untyped-def]
    batch = batch_of(9, n=16)
    rows = naive.samples(rows_of(batch), "top_label", "mean")
    pane_query = PaneQuery(raters="mean")
    found = asked(batch, "zhang_kde_ece", True, pane_query, **options)["zhang_kde_ece"]
    assert found["value"] == pytest.approx(naive.density_error(rows, 16, **how), abs=2e-6)
    plain = value(batch, "zhang_kde_ece", pane_query=PaneQuery(raters="mean"))
    assert abs(found["value"] - plain) > 1e-3
    assert found["bandwidth_from"] == options.get("bandwidth_from", "kernel_sd")
    kept = asked(batch, "zhang_kde_ece", False, pane_query, **options)["zhang_kde_ece"]
    assert abs(kept["value"] - found["value"]) <= kept["error_bound"]


@policies
@pytest.mark.parametrize("edges", ["right", "left"])
def test_uce_equals_the_naive_version(raters: str, edges: str) -> None:
    batch = batch_of(5)
    pane_query = PaneQuery(raters=raters, bins=12, edges=edges)  # type: ignore[arg-type]
    expected = naive.uce(rows_of(batch), raters, 12, edges)
    for raw in (True, False):
        assert value(batch, "uce", raw, pane_query) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("raw", [True, False])
def test_measures_against_ratings_equal_the_naive_version(raw: bool) -> None:
    batch = batch_of(6, n=80, n_classes=4)
    found = asked(batch, ("ent_ce", "dist_ce", "rank_cs"), raw)
    expected = naive.against_votes(rows_of(batch))
    for slug in found:
        assert found[slug]["value"] == pytest.approx(expected[slug], abs=1e-12)
    assert found["ent_ce"]["mean_signed"] == pytest.approx(expected["mean_signed"], abs=1e-12)
    for name in ("strict_pairs", "untied_fraction"):
        assert found["rank_cs"][name] == pytest.approx(expected[name], abs=1e-12)


@policies
@pytest.mark.parametrize("kind", ["brier", "log"])
def test_corp_equals_the_naive_version(raters: str, kind: str) -> None:
    rng = np.random.default_rng(2)
    z = np.clip(np.round(rng.random(40), 1), 0.05, 0.95)
    counts = np.stack([rng.binomial(3, 1 - z**1.3), np.zeros(40, int)], axis=1)
    counts[:, 1] = 3 - counts[:, 0]
    batch = Batch.from_columns({"confidences": z, "label_counts": counts}).batch
    expected = naive.corp(naive.samples(rows_of(batch), "positive", raters), kind)
    found = asked(batch, tuple(expected), pane_query=PaneQuery(raters=raters), score=kind)
    for slug, number in expected.items():
        assert found[slug]["value"] == pytest.approx(number, abs=1e-12)


def test_classical_tests_equal_the_naive_version() -> None:
    rng = np.random.default_rng(4)
    z = np.round(rng.beta(0.8, 0.8, 90), 3)
    labels = (rng.random(90) < z).astype(int)
    batch = Batch.from_columns({"confidences": z, "labels": labels}).batch
    rows = naive.samples(rows_of(batch), "positive", "pooled")
    found = asked(batch, ("spiegelhalter_z", "hosmer_lemeshow"), pane_query=PaneQuery(bins=10))
    z_value = naive.spiegelhalter(rows, [1] * 90)
    assert found["spiegelhalter_z"]["value"] == pytest.approx(z_value, abs=1e-10)
    assert found["hosmer_lemeshow"]["value"] == pytest.approx(
        naive.hosmer_lemeshow(rows, 10), abs=1e-9
    )
    assert found["hosmer_lemeshow"]["degrees_of_freedom"] == 10
    training = asked(batch, "hosmer_lemeshow", pane_query=PaneQuery(bins=10), data="training")
    assert training["hosmer_lemeshow"]["degrees_of_freedom"] == 8


def test_ratings_and_unit_members_count_as_dependent() -> None:
    batch = batch_of(7, n_classes=2, units=True, weights=False)
    rows = naive.samples(rows_of(batch), "positive", "pooled")
    sizes = np.bincount(np.unique(batch.unit_hash, return_inverse=True)[1])
    index = np.unique(batch.unit_hash, return_inverse=True)[1]
    expected = naive.spiegelhalter(rows, sizes[index].tolist())
    assert value(batch, "spiegelhalter_z") == pytest.approx(expected, abs=1e-10)
