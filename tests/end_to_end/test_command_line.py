"""Commands that use a service: sent once, watched, mapped, exported, examined."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import calibrant as cal
from tests.cli.command import Finished, predictions, runner, softmax
from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually

LOGITS, P, Y = predictions(400)
MODEL = "commanded"
Run = Callable[..., Finished]


@pytest.fixture
def run(
    embedded: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setenv("CALIBRANT_URL", f"http://127.0.0.1:{embedded.port}")
    return runner(capsys)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    np.save(tmp_path / "logits.npy", LOGITS)
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join(map(str, Y)) + "\n")
    return [tmp_path / "logits.npy", tmp_path / "labels.csv"]


def pushed(run: Run, files: list[Path], embedded: Deployment) -> str:
    """Send the files; they count once, however often, and the command says so."""
    found = run("push", MODEL, *files)
    assert found.code == 0, found.error
    again = f"0 rows accepted by {MODEL}; 400 were already counted"
    assert f"400 rows accepted by {MODEL}\n" in found.out or again in found.out
    eventually(lambda: embedded.get(f"/v1/models/{MODEL}/metrics")["n_labelled"] == 400)
    return found.out


def test_the_same_files_count_once(run: Run, files: list[Path], embedded: Deployment) -> None:
    pushed(run, files, embedded)
    assert "400 were already counted" in pushed(run, files, embedded)
    found = embedded.get(f"/v1/models/{MODEL}/metrics", metrics="ece")
    assert found["n_predictions"] == 400
    expected = cal.ece(logits=LOGITS, labels=Y).value
    assert found["metrics"]["ece"]["value"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("names", [["cat", "dog", "owl"], ["1", "0", "2"]])
def test_classes_of_a_file_are_those_of_the_model(
    names: list[str], run: Run, embedded: Deployment, tmp_path: Path
) -> None:
    """Their order too: a file is sent by the places of its columns."""
    model, path = f"named-{names[0]}", tmp_path / "rows.csv"
    embedded.client.put(f"/v1/models/{model}", json={"classes": names})
    rows = [",".join([*map(repr, p.tolist()), names[y]]) for p, y in zip(P, Y, strict=True)]
    path.write_text("\n".join(["a,b,c,label", *rows]))
    found = run("push", model, path, "--classes", ",".join(names))
    assert found.code == 0, found.error
    eventually(lambda: embedded.get(f"/v1/models/{model}/metrics")["n_labelled"] == len(P))
    result = embedded.get(f"/v1/models/{model}/metrics", metrics="accuracy")["metrics"]["accuracy"]
    assert result["value"] == pytest.approx((P.argmax(axis=1) == Y).mean())
    found = run("push", model, path, "--classes", ",".join(names[::-1]))
    assert found.code == 1 and "expected those of the model, in its order" in found.error


def test_models_are_listed_and_watched(run: Run, files: list[Path], embedded: Deployment) -> None:
    pushed(run, files, embedded)
    for command in (["models"], ["watch", "--count", 1]):
        found = run(*command)
        assert found.code == 0, found.error
        assert MODEL in found.out and "Temperature" in found.out


def test_settings_of_one_model_and_of_all_are_changed(
    run: Run, files: list[Path], embedded: Deployment
) -> None:
    pushed(run, files, embedded)
    values = ("alarm.tolerance=0.05", "tags.owner=ann", "label_horizon=P2D")
    done = run("set", MODEL, *values, "--reason", "agreed")
    assert done.code == 0 and f"{MODEL}: set alarm.tolerance=0.05" in done.out, done.error
    settings = embedded.get(f"/v1/models/{MODEL}")
    assert (settings["alarm"]["tolerance"], settings["tags"]) == (0.05, {"owner": "ann"})
    assert MODEL not in run("models", "--tag", "owner:bo").out
    assert run("set", "--all", "--tag", "owner:ann", "tags.owner=null").code == 0
    assert "tags" not in embedded.get(f"/v1/models/{MODEL}")
    assert "expected MODEL NAME=VALUE" in run("set", "tags.owner=ann").error
    assert "expected a duration" in run("set", MODEL, "label_horizon=soon").error
    words = " ".join(run("drift", MODEL).out.split())
    assert "UTC: tolerance 0.02 → 0.05 without a key, agreed" in words
    assert run("set", MODEL, "label_horizon=null", "alarm=null").code == 0


def test_words_and_alarms_are_listed(run: Run, files: list[Path], embedded: Deployment) -> None:
    pushed(run, files, embedded)
    words = run("drift", MODEL)
    assert words.code == 0, words.error
    sentence = embedded.get(f"/v1/models/{MODEL}/drift")["change"]["sentence"]
    assert sentence in " ".join(words.out.split())
    assert run("alarms", MODEL, "--state", "open").out.strip() == "No alarm was raised."
    assert f"The nearest name is {MODEL}." in run("drift", f"{MODEL[:-1]}").error
    assert "nearest" not in run("drift", "quite-another-word").error


def test_a_result_is_written_as_json(run: Run, files: list[Path], embedded: Deployment) -> None:
    pushed(run, files, embedded)
    found = run("read", MODEL, "label-distribution", "window=P7D")
    assert found.code == 0, found.error
    assert json.loads(found.out)["model"] == MODEL
    assert "Received result 'rocs'; expected one of" in run("read", MODEL, "rocs").error
    assert "expected NAME=VALUE" in run("read", MODEL, "roc", "P7D").error


def test_a_map_is_promoted_read_and_applied(
    run: Run, files: list[Path], embedded: Deployment, tmp_path: Path
) -> None:
    pushed(run, files, embedded)
    assert "No map of this model was promoted yet" in run("maps", "get", MODEL).error
    assert "was frozen yet" in run("maps", "list", MODEL).out
    made = run("maps", "fit", MODEL)
    assert f"calibrant maps promote {MODEL} 1" in " ".join(made.out.split()), made.error
    promoted = run("maps", "promote", MODEL, 1, "--reason", "first")
    assert promoted.code == 0, promoted.error
    assert f"Version 1 is the current map of {MODEL}" in promoted.out
    assert "current" in run("maps", "list", MODEL).out
    found = run("maps", "get", MODEL, "-o", tmp_path / "map.json")
    assert found.code == 0, found.error
    applied = run("maps", "apply", tmp_path / "map.json", files[0], "-o", tmp_path / "p.npy")
    assert applied.code == 0, applied.error
    temperature = json.loads((tmp_path / "map.json").read_text())["parameters"]["temperature"]
    np.testing.assert_allclose(
        np.load(tmp_path / "p.npy"), softmax(LOGITS / temperature), atol=1e-12
    )


def test_a_model_is_exported_and_imported(
    run: Run, files: list[Path], embedded: Deployment, tmp_path: Path
) -> None:
    pushed(run, files, embedded)
    exported = run("export", MODEL, tmp_path / "model.ndjson")
    assert exported.code == 0, exported.error
    assert not list(tmp_path.glob("*.part"))
    text = (tmp_path / "model.ndjson").read_text()
    assert text.splitlines()[-1].startswith('{"type":"end"')
    missing = run("export", "nobody", tmp_path / "none.ndjson")
    assert missing.code == 1 and "404" in missing.error and not (tmp_path / "none.ndjson").exists()
    rejected = run("import", MODEL, tmp_path / "model.ndjson")
    assert rejected.code == 1 and "model-conflict" in rejected.error
    imported = run("import", f"{MODEL}-copy", tmp_path / "model.ndjson")
    assert imported.code == 0, imported.error
    assert f"Imported {MODEL}-copy" in imported.out


def test_a_table_is_filled_into_panes(run: Run, tmp_path: Path) -> None:
    times = np.datetime64("2026-11-20T00:00:00") + np.arange(400) * np.timedelta64(1, "m")
    table = {
        "ts": pa.array(times.astype("datetime64[us]"), pa.timestamp("us", "UTC")),
        "site": ["A" if i % 2 else "B" for i in range(400)],
        **{f"p{k}": P[:, k] for k in range(3)},
        "label": Y,
    }
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "rows.parquet")
    arguments = ("fill", tmp_path / "rows.parquet", tmp_path / "panes")
    options = ("--scores", "p*", "--time", "ts", "--every", "1d", "--slices", "site")
    found = run(*arguments, *options)
    assert found.code == 0, found.error
    rows = list(csv.DictReader((tmp_path / "panes" / "index.csv").read_text().splitlines()))
    assert [row["slice"] for row in rows] == ["", "site:A", "site:B"]
    pane = cal.Pane.from_bytes((tmp_path / "panes" / rows[0]["file"]).read_bytes())
    assert pane == cal.Pane.fill(P, Y) and rows[0]["n_labelled"] == "400"
    again = run(*arguments, *options)
    assert again.code == 1 and "not empty" in again.error


def test_the_doctor_finds_a_well_and_a_missing_service(run: Run, tmp_path: Path) -> None:
    well = run("doctor", "--data-dir", tmp_path)
    assert well.code == 0, well.out
    assert "takes writes" in well.out and "error" not in well.out
    missing = run("doctor", "--url", "http://127.0.0.1:9", "--data-dir", tmp_path)
    assert missing.code == 1
    assert "does not respond" in missing.out and "calibrant serve" in missing.out


def test_an_unreachable_service_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.client.transport.READ_RETRIES_S", 0.01)
    found = run("models", "--url", "http://127.0.0.1:9")
    assert found.code == 1
    assert "ConnectError" in found.error and "Traceback" not in found.error
    assert "calibrant serve" in found.error and "CALIBRANT_URL" in found.error
    assert "expected an address with http" in run("models", "--url", "localhost:8000").error
