"""Disagreement under a given concentration and temperature: naive versions, limits, stored state against rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import calibrant as cal
from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import compute_metrics
from calibrant.raters.disagreement_report import disagreement_report

SLUGS = ("disagreement_loss", "disagreement_ce", "calibrated_disagreement_ce")


def rows(n: int = 700, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.normal(size=(n, 3))
    zeta = np.stack([rng.dirichlet(3.0 * p + 1e-6) for p in softmax(z / 1.5, axis=1)])
    return z, np.stack([rng.multinomial(rng.integers(1, 6), q) for q in zeta])


def view(z: np.ndarray, y: np.ndarray, raw: bool = True, bins: int = 15, **options: object) -> View:
    batch = Batch.from_columns({"logits": z, "label_counts": y}).batch
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(bins=bins, options=options), batch if raw else None)


def naive(z: np.ndarray, y: np.ndarray, alpha: float, temperature: float, bins: int) -> dict:
    loss, before, after = [], {}, {}
    for logits, ratings in zip(z, y, strict=True):
        n = ratings.sum()
        if n < 2:
            continue
        point = 1.0 - sum(p * p for p in softmax(logits / temperature))
        d = (alpha / (alpha + 1.0) if alpha else 1.0) * point
        phi = 1.0 - sum(v * (v - 1) for v in ratings) / (n * (n - 1))
        loss.append((phi - d) ** 2 + phi * (1.0 - phi))
        for held, score in ((before, point), (after, d)):
            held.setdefault(max(int(np.ceil(score * bins)), 1), []).append((d, phi))

    def error(held: dict[int, list[tuple[float, float]]]) -> float:
        total = 0.0
        for pairs in map(np.array, held.values()):
            total += len(pairs) * (pairs[:, 0].mean() - pairs[:, 1].mean()) ** 2
            total -= len(pairs) * pairs[:, 1].var() / (len(pairs) - 1) if len(pairs) > 1 else 0.0
        return float(np.sqrt(max(total / len(loss), 0.0)))

    return dict(zip(SLUGS, (np.mean(loss), error(before), error(after)), strict=True))


@pytest.mark.parametrize(("alpha", "temperature"), [(0.0, 1.0), (2.5, 1.0), (0.0, 1.7), (4.0, 0.6)])
@pytest.mark.parametrize("bins", [15, 8])
def test_rows_equal_the_naive_version(alpha: float, temperature: float, bins: int) -> None:
    z, y = rows()
    found = compute_metrics(
        view(z, y, bins=bins, concentration=alpha, temperature=temperature), SLUGS
    )
    expected = naive(z, y, alpha, temperature, bins)
    for slug in SLUGS:
        assert found[slug]["value"] == pytest.approx(expected[slug], abs=1e-9), slug
        assert found[slug]["temperature"] == temperature
        assert found[slug]["concentration"] == (alpha or None)


def test_stored_cells_give_loss_and_bins_exactly_and_calibrated_bins_nearly() -> None:
    z, y = rows(4000)
    stored = compute_metrics(view(z, y, raw=False, concentration=2.5), SLUGS)
    exact = compute_metrics(view(z, y, concentration=2.5), SLUGS)
    for slug in SLUGS[:2]:
        assert stored[slug]["value"] == pytest.approx(exact[slug]["value"], abs=1e-9)
        assert stored[slug].get("interval_reason") == exact[slug].get("interval_reason")
    assert stored["disagreement_loss"]["interval"] is None
    low, high = stored["disagreement_ce"]["interval"]
    assert low <= stored["disagreement_ce"]["value"] <= high
    near = stored["calibrated_disagreement_ce"]
    error = abs(near["value"] - exact["calibrated_disagreement_ce"]["value"])
    assert error <= max(near["error_estimate"], 1e-12) < 0.02
    assert "error_estimate" not in exact["calibrated_disagreement_ce"]


def test_calibrated_bins_of_cells_are_seldom_further_from_rows_than_their_error_says() -> None:
    """Moving every cut cell to one side at once made errors too small in a twentieth of runs, by up to 18 times."""
    rng, slug, ratios = np.random.default_rng(0), "calibrated_disagreement_ce", []
    for _ in range(120):
        n, k = int(rng.choice([40, 150, 500])), int(rng.choice([3, 6]))
        p = rng.dirichlet(np.full(k, rng.choice([0.3, 1.0, 3.0])), n)
        rates = [rng.dirichlet(row * rng.choice([1.0, 5.0, 30.0]) + 1e-3) for row in p]
        votes = np.array([rng.choice(k, 3, p=rate) for rate in rates])
        how = {
            "bins": int(rng.choice([5, 10, 15, 20])),
            "concentration": rng.choice([1.0, 5.0, 20.0]),
        }
        rows = cal.evaluate(p, votes, [slug], **how)[slug]
        cells = cal.Pane.fill(p, votes).evaluate([slug], **how)[slug]
        off = abs(rows.value - cells.value)
        ratios.append(0.0 if off < 1e-12 else off / cells.extra["error_estimate"])
    assert np.mean(np.array(ratios) > 1.0) <= 0.02 and np.mean(np.array(ratios) > 0.1) > 0.05


def test_a_large_concentration_is_none() -> None:
    z, y = rows()
    plain = compute_metrics(view(z, y), SLUGS)
    large = compute_metrics(view(z, y, concentration=1e12), SLUGS)
    for slug in SLUGS:
        assert large[slug]["value"] == pytest.approx(plain[slug]["value"], abs=1e-9)
    assert plain["calibrated_disagreement_ce"]["value"] == plain["disagreement_ce"]["value"]


def test_impossible_classes_stay_impossible() -> None:
    batch = Batch.from_columns(
        {"probabilities": [[1.0, 0.0], [0.5, 0.5]] * 20, "labels": [[0, 0], [0, 1]] * 20}
    ).batch
    pane = Pane(PaneSpec("multiclass", 2))
    pane.fill_batch(batch)
    found = compute_metrics(View(pane, PaneQuery(options={"temperature": 4.0}), batch), SLUGS[:1])
    assert found["disagreement_loss"]["value"] == pytest.approx(0.5 * (1 - 0.5) ** 2)


def test_what_stored_state_does_not_have() -> None:
    z, y = rows()
    for slug, result in compute_metrics(view(z, y, raw=False, temperature=2.0), SLUGS).items():
        assert (result["value"], result["reason"]) == (None, "needs_raw_rows"), slug
    for options in ({"concentration": -1.0}, {"temperature": 0.0}, {"temperature": 33.0}):
        with pytest.raises(CalibrationInputError):
            compute_metrics(view(z, y, **options), SLUGS[:1])


def test_differences_need_replicates_of_the_loss() -> None:
    one, other = view(*rows(), raw=False), view(*rows(seed=2), raw=False)
    result = differences(one, other, ["disagreement_loss(concentration=3)", "disagreement_loss"])
    assert result["disagreement_loss"]["difference_interval"] is not None
    under = result["disagreement_loss(concentration=3)"]
    assert (under["difference_interval"], under["difference_reason"]) == (None, "not_replicated")
    assert under["difference"] == pytest.approx(under["value"] - under["against"])


def test_the_report_scores_a_given_concentration() -> None:
    z, y = rows()
    found = disagreement_report(view(z, y, concentration=5.0))
    expected = naive(z, y, 5.0, 1.0, 15)
    for slug in SLUGS:
        assert found["given"][slug] == pytest.approx(expected[slug], abs=1e-9), slug
    fitted = naive(z, y, found["concentration"]["value"], 1.0, 15)
    for slug in SLUGS:
        assert found["after"][slug] == pytest.approx(fitted[slug], abs=1e-9), slug
    assert "given" not in disagreement_report(view(z, y))
