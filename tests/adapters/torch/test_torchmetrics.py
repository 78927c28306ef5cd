"""The torchmetrics metric: batches, epochs and ranks give the numbers of one pass over all predictions."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

torch = pytest.importorskip("torch", reason="PyTorch is installed by `make test-adapters`")
pytest.importorskip("torchmetrics", reason="torchmetrics is installed by `make test-adapters`")

from torchmetrics import MetricCollection  # noqa: E402

from calibrant.contrib.torchmetrics import CalibrationMetric  # noqa: E402
from tests.adapters.examples import run_example  # noqa: E402

N_CLASSES, N = 4, 600
METRICS = "ece,brier,nll"


def predictions(n: int = N, seed: int = 0):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(0, 2, (n, N_CLASSES)))
    labels = torch.tensor(rng.integers(0, N_CLASSES, n))
    return logits.softmax(-1), labels


def complete(scores, labels, **options):
    pane = cal.Pane.fill(scores.numpy(), labels.numpy(), **options)
    return pane.evaluate(METRICS)


def assert_equal(found, report):
    assert set(found) == set(report)
    for name, value in found.items():
        assert float(value) == pytest.approx(float(report[name]), rel=1e-6)


@pytest.mark.parametrize("size", [1, 7, 200, N])
def test_batches_give_the_numbers_of_all_predictions(size):
    scores, labels = predictions(60 if size == 1 else N)
    metric = CalibrationMetric(N_CLASSES, METRICS)
    for start in range(0, len(scores), size):
        metric.update(scores[start : start + size], labels[start : start + size])
    assert_equal(metric.compute(), complete(scores, labels))
    assert metric.report()["ece"].interval == complete(scores, labels)["ece"].interval
    assert metric.pane().counts["n_predictions"] == len(scores)


def test_forward_gives_the_numbers_of_the_batch_and_keeps_the_epoch():
    scores, labels = predictions()
    metric = CalibrationMetric(N_CLASSES, METRICS)
    metric(scores[:300], labels[:300])
    assert_equal(metric(scores[300:], labels[300:]), complete(scores[300:], labels[300:]))
    assert_equal(metric.compute(), complete(scores, labels))
    metric.reset()
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert all(torch.isnan(each) for each in metric.compute().values())


def test_a_collection_takes_it():
    scores, labels = predictions()
    found = MetricCollection([CalibrationMetric(N_CLASSES, METRICS)])
    found.update(scores, labels)
    assert_equal(found.compute(), complete(scores, labels))


def test_several_raters_logits_pixels_and_absent_ratings():
    rng = np.random.default_rng(1)
    logits = torch.tensor(rng.normal(0, 2, (50, N_CLASSES)))
    ratings = torch.tensor(rng.integers(0, N_CLASSES, (50, 3)))
    ratings[::5, 1:] = -100
    metric = CalibrationMetric(N_CLASSES, METRICS, is_logits=True)
    metric.update(logits, ratings)
    lists = [[c for c in row if c >= 0] for row in ratings.tolist()]
    assert_equal(
        metric.compute(), cal.Pane.fill(logits=logits.numpy(), labels=lists).evaluate(METRICS)
    )

    images = torch.tensor(rng.normal(0, 2, (2, N_CLASSES, 5, 6))).softmax(1)
    classes = torch.tensor(rng.integers(0, N_CLASSES, (2, 5, 6)))
    metric = CalibrationMetric(N_CLASSES, METRICS, task="segmentation")
    metric.update(images, classes, units=np.repeat(["a", "b"], 30))
    rows = images.permute(0, 2, 3, 1).reshape(-1, N_CLASSES)
    report = metric.report()
    assert_equal(metric.compute(), complete(rows, classes.reshape(-1)))
    assert report.n_units == 2


def test_targets_outside_the_classes_are_refused():
    scores, labels = predictions(10)
    metric = CalibrationMetric(N_CLASSES)
    with pytest.raises(ValueError, match="expected 0 to 3"):
        metric.update(scores, labels + 1 + N_CLASSES)
    with pytest.raises(ValueError, match="9 targets"):
        metric.update(scores, labels[:9])


def rank(number: int, n_ranks: int, folder: str) -> None:
    """One process: rank 2 has no predictions, and the others have different numbers of batches."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=number, world_size=n_ranks
    )
    metric = CalibrationMetric(N_CLASSES, METRICS)
    scores, labels = predictions()
    starts = ([0], [100, 200, 300], [])[number]
    for start in starts:
        metric.update(scores[start : start + 100], labels[start : start + 100])
    found = {name: float(value) for name, value in metric.compute().items()}
    np.save(f"{folder}/{number}.npy", np.array([found[name] for name in METRICS.split(",")]))
    assert metric.pane().counts["n_predictions"] == 100 * len(starts)  # its own again
    torch.distributed.destroy_process_group()


def test_ranks_merge_though_one_is_idle(tmp_path):
    torch.multiprocessing.spawn(rank, (3, str(tmp_path)), nprocs=3)
    scores, labels = predictions()
    report = complete(scores[:400], labels[:400])
    expected = [float(report[name]) for name in METRICS.split(",")]
    for number in range(3):
        np.testing.assert_allclose(np.load(tmp_path / f"{number}.npy"), expected, rtol=1e-6)


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.torchmetrics")
    assert capsys.readouterr().out
