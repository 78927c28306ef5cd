"""The Hugging Face Trainer: metrics of evaluations, complete and batch by batch, and the pane that is sent."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="installed by `make test-adapters`")
torch = pytest.importorskip("torch", reason="PyTorch is installed by `make test-adapters`")

from transformers import EvalPrediction, Trainer, TrainingArguments  # noqa: E402
from transformers.modeling_outputs import SequenceClassifierOutput  # noqa: E402

import calibrant as cal  # noqa: E402
from calibrant.contrib.transformers import CalibrationCallback, CalibrationMetrics  # noqa: E402
from tests.adapters.examples import run_example  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
N_CLASSES, N = 3, 90


class Classifier(torch.nn.Module):  # type: ignore[name-defined]
    """A linear classifier in the form that the Trainer expects."""

    def __init__(self, n_outputs: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.n_outputs = torch.nn.Linear(4, N_CLASSES), n_outputs

    def forward(self, x, labels=None):
        logits = self.layer(x)
        keep = labels != -100
        loss = torch.nn.functional.cross_entropy(logits[keep], labels[keep])
        hidden = (x,) if self.n_outputs == 2 else None
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=hidden)


def rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, 4, generator=generator) * 3
    y = torch.randint(0, N_CLASSES, (N,), generator=generator)
    y[::10] = -100
    return [{"x": x[i], "labels": y[i]} for i in range(N)], x, y


class Model:
    """What the callback needs of `client.model(name)`."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, dict]] = []

    def send_pane(self, pane, **options):
        self.sent.append((pane.to_bytes(), options))


def trainer(folder, calibration, batchwise=False, n_outputs=1, **options):
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_eval_batch_size=16,
        batch_eval_metrics=batchwise,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        **options,
    )
    given, _, _ = rows()
    return Trainer(
        Classifier(n_outputs), arguments, train_dataset=given, eval_dataset=given,
        compute_metrics=calibration,
    )  # fmt: skip


def expected(found):
    _, x, y = rows()
    with torch.no_grad():
        logits = found.model.layer(x).double().numpy()
    keep = (y != -100).numpy()
    return cal.Pane.fill(logits=logits[keep], labels=y[keep].numpy())


@pytest.mark.parametrize("batchwise", [False, True])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_an_evaluation_gives_the_metrics_of_one_pass(tmp_path, batchwise, n_outputs):
    calibration = CalibrationMetrics(N_CLASSES, "ece,brier")
    found = trainer(tmp_path, calibration, batchwise, n_outputs)
    for _ in range(2):  # a second evaluation starts anew
        values = found.evaluate()
        pane = expected(found)
        report = pane.evaluate("ece,brier")
        assert calibration.report.n_predictions == N - N // 10 == report.n_predictions
        assert values["eval_ece"] == pytest.approx(report["ece"].value, abs=1e-5)
        assert values["eval_brier"] == pytest.approx(report["brier"].value, abs=1e-5)
        assert calibration.report["ece"].interval is not None


def test_the_callback_sends_each_evaluation_of_a_training_from_the_first_process(tmp_path):
    calibration, model = CalibrationMetrics(N_CLASSES, "ece"), Model()
    found = trainer(tmp_path, calibration, num_train_epochs=2, eval_strategy="epoch", max_steps=-1)
    at = datetime(2026, 11, 20, tzinfo=UTC)
    callback = CalibrationCallback(
        calibration, model, run="run-1", event_time=at, slice={"site": "A"}
    )
    found.add_callback(callback)
    found.train()
    steps = [entry["step"] for entry in found.state.log_history if "eval_ece" in entry]
    assert len(model.sent) == len(steps) == 2
    assert [options["batch_id"] for _, options in model.sent] == [f"run-1.{each}" for each in steps]
    assert model.sent[-1][0] == calibration.pane.to_bytes()
    assert model.sent[0][0] != model.sent[1][0]
    assert model.sent[0][1]["slice"] == {"site": "A"}
    assert model.sent[0][1]["event_time"] == at
    with pytest.raises(ValueError, match="expected both or none"):
        CalibrationCallback(calibration, model, run="run-1")
    found.state.is_world_process_zero = False
    CalibrationCallback(calibration, model).on_evaluate(found.args, found.state, found.control)
    assert len(model.sent) == 2


def test_tokens_and_other_metrics():
    def accuracy(predictions):
        return {"accuracy": 0.5}

    calibration = CalibrationMetrics(N_CLASSES, "ece", also=accuracy)
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(0, 1, (4, 6, N_CLASSES)), rng.integers(0, N_CLASSES, (4, 6))
    labels[:, 3:] = -100
    values = calibration(EvalPrediction(predictions=logits, label_ids=labels))
    assert set(values) == {"ece", "accuracy"} and calibration.report.n_predictions == 12
    with pytest.raises(ValueError, match=r"expected \(\.\.\., 3\)"):
        calibration(EvalPrediction(predictions=logits[..., :2], label_ids=labels))


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.transformers")
    assert capsys.readouterr().out
