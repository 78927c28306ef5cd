"""The MONAI metric and its handler: panes per case with several readers, and the numbers of all pixels."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

torch = pytest.importorskip("torch", reason="PyTorch is installed by `make test-adapters`")
pytest.importorskip("monai", reason="MONAI is installed by `make test-adapters`")
ignite_engine = pytest.importorskip("ignite.engine", reason="so is Ignite")

from calibrant.contrib.monai import CasePanesHandler, CasePanesMetric  # noqa: E402
from tests.adapters.examples import run_example  # noqa: E402

N_CLASSES, SHAPE, READERS = 3, (6, 5), 3
METRICS = ["ece", "brier"]


def images(n: int = 4, seed: int = 0):
    """Probabilities (n, classes, spatial) and one class map per reader, (n, readers, spatial)."""
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.normal(0, 1.5, (n, N_CLASSES, *SHAPE))).softmax(1)
    return scores, torch.tensor(rng.integers(0, N_CLASSES, (n, READERS, *SHAPE)))


def expected(scores, readers, units):
    """The same of all pixels in one call of the library, which was given ratings as lists."""
    rows = scores.movedim(1, -1).reshape(-1, N_CLASSES).numpy()
    ratings = readers.movedim(1, -1).reshape(-1, readers.shape[1]).tolist()
    labels = [[each for each in row if each >= 0] for row in ratings]
    spec = cal.PaneSpec("segmentation", N_CLASSES)
    pane = cal.Pane.fill(rows, labels, units=np.repeat(units, np.prod(SHAPE)), spec=spec)
    report = pane.evaluate(METRICS)
    return [float(report[name]) for name in METRICS]


@pytest.mark.parametrize("as_list", [False, True])
def test_panes_per_case_and_numbers_of_all_pixels(as_list):
    scores, readers = images()
    readers[1, 2] = -1  # a reader who did not label this image
    metric = CasePanesMetric(N_CLASSES, METRICS)
    for part in (slice(0, 1), slice(1, 4)):
        given = (
            [list(scores[part]), list(readers[part])] if as_list else [scores[part], readers[part]]
        )
        names = ["a", "b", "c", "d"][part]
        each = metric(*given, cases=names, units=["p1", "p1", "p2", "p3"][part])
        assert each.shape == (len(names), 2)
    units = np.array(["p1", "p1", "p2", "p3"])
    np.testing.assert_allclose(metric.aggregate(), expected(scores, readers, units), rtol=1e-9)
    assert list(metric.panes) == ["a", "b", "c", "d"]
    assert metric.panes["b"].counts["n_ratings"] == 2 * np.prod(SHAPE)
    own = expected(scores[1:2], readers[1:2], units[1:2])
    np.testing.assert_allclose(metric.get_buffer()[1], own, rtol=1e-9)
    metric.reset()
    assert not metric.panes and metric.get_buffer() is None


def test_one_hot_and_one_channel():
    scores, readers = images()
    classes = readers[:, :1]
    one_hot = torch.nn.functional.one_hot(classes[:, 0], N_CLASSES).movedim(-1, 1)
    metric = CasePanesMetric(N_CLASSES, METRICS, one_hot=True)
    metric(scores, one_hot)
    np.testing.assert_allclose(
        metric.aggregate(), expected(scores, classes, np.arange(4)), rtol=1e-9
    )

    binary, both = CasePanesMetric(2, METRICS), CasePanesMetric(2, METRICS, is_logits=True)
    p, labels = scores[:, :1], (classes > 0).long()
    binary(p, labels)
    both((p / (1 - p)).log(), labels)
    np.testing.assert_allclose(binary.aggregate(), both.aggregate(), rtol=1e-6)


def test_labels_outside_the_classes_and_missing_ones_are_refused():
    scores, readers = images()
    metric = CasePanesMetric(N_CLASSES)
    with pytest.raises(ValueError, match="outside 0 to 2"):
        metric(scores, readers + 7)
    with pytest.raises(ValueError, match="expected as many labels"):
        metric(scores, readers[:2])
    assert not metric.panes


@pytest.mark.parametrize("is_decollated", [False, True])
def test_the_handler_reads_names_from_the_batch(is_decollated):
    scores, readers = images()
    names, patients = ["a", "b", "c", "d"], ["p1", "p1", "p2", "p3"]

    def batch(i):
        keyed = {"case": names[i : i + 2], "patient": patients[i : i + 2]}
        if not is_decollated:
            return keyed | {"place": i}
        return [{"case": names[j], "patient": patients[j], "place": j} for j in (i, i + 1)]

    def step(engine, found):
        i = found[0]["place"] if is_decollated else found["place"]
        return scores[i : i + 2], readers[i : i + 2]

    metric = CasePanesMetric(N_CLASSES, METRICS)
    engine = ignite_engine.Engine(step)
    CasePanesHandler(metric, unit_key="patient").attach(engine, "calibration")
    engine.run([batch(0), batch(2)])
    found = engine.state.metrics["calibration"]
    np.testing.assert_allclose(found, expected(scores, readers, np.array(patients)), rtol=1e-9)
    assert list(metric.panes) == names
    assert engine.state.metric_details["calibration"].shape == (4, 2)


def rank(number: int, folder: str) -> None:
    """One process: the ranks have different numbers of cases, and a sampler repeated one."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=number, world_size=2
    )
    scores, readers = images()
    metric = CasePanesMetric(N_CLASSES, METRICS)
    places = [0, 1, 2] if number == 0 else [3, 0]
    names = np.array(["a", "b", "c", "d"])[places]
    metric(scores[places], readers[places], cases=names, units=names)
    np.save(f"{folder}/{number}.npy", metric.aggregate().numpy())
    torch.distributed.destroy_process_group()


def test_ranks_gather_panes_and_count_a_repeated_case_once(tmp_path):
    torch.multiprocessing.spawn(rank, (str(tmp_path),), nprocs=2)
    scores, readers = images()
    for number in range(2):
        found = np.load(tmp_path / f"{number}.npy")
        np.testing.assert_allclose(found, expected(scores, readers, np.arange(4)), rtol=1e-9)


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.monai")
    assert capsys.readouterr().out
