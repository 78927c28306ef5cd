"""Planted names of patients, cases, files and image headers: with pseudonyms none is in the state, the logs or the reports."""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import zstandard

from calibrant import Pane
from calibrant.cli import main
from calibrant.cli.imaging.volumes import read_volume
from calibrant.client import Client, Pseudonyms
from tests.cli.dicom_files import write_segmentation
from tests.cli.test_manifest import SPACING, image, voxels
from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually

SALT = b"the salt of this hospital"
# Each may be anything: a name has spaces, commas and letters of other languages.
PATIENTS = ["Plantedpatient, Änne", "Plantedpatient, Bo"]
CASES = ["Plantedcase 1", "Plantedcase 2", "Plantedcase 3"]
PLANTED = re.compile(rb"planted", re.IGNORECASE)
ZSTD = b"\x28\xb5\x2f\xfd"
BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")


def found_in(data: bytes) -> bool:
    """Search bytes, every zstd frame in them, and every base64 text."""
    if PLANTED.search(data):
        return True
    for at in (found.start() for found in re.finditer(re.escape(ZSTD), data)):
        try:
            unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
        except zstandard.ZstdError:
            continue
        if found_in(unpacked):
            return True
    # A number of characters that no base64 text has, as a hexadecimal digest may have, is one too many.
    texts = (text[: len(text) - (len(text) % 4 == 1)] for text in BASE64.findall(data))
    decoded = (base64.b64decode(text + b"=" * (-len(text) % 4)) for text in texts)
    return any(found_in(each) for each in decoded)


def send(deployment: Deployment, model: str, pseudonyms: Pseudonyms | None) -> None:
    """Rows with names, labels by id that arrive before and after, a log, and a pane."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(2), 60)
    plain = {f"Planted{kind}-{i}": None for kind in ("early", "late") for i in range(60)}
    ids = list(plain)
    units = [PATIENTS[i % 2] for i in range(60)]
    cases = [CASES[i % 3] for i in range(60)]
    if pseudonyms is None:  # The service accepts plain names of a few characters only.
        units, cases = ([re.sub("[^A-Za-z0-9]", "-", each) for each in column] for column in (units, cases))  # fmt: skip
    url = f"http://127.0.0.1:{deployment.port}"
    with Client(url, pseudonyms=pseudonyms) as client:
        target = client.model(model)
        target.label(ids[:60], [0] * 60, raters=["ann"] * 60, wait=30)
        target.send(probabilities=p, ids=ids[:60], units=units, cases=cases, wait=30)
        target.log(p, ids=ids[60:], units=units, cases=cases)
        assert target.flush(60)
        target.label(ids[60:], [1] * 60, wait=30)
        found = deployment.get(f"/v1/models/{model}/metrics", metrics="ece,brier")
        assert found["n_labelled"] == 120, found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Deployment, Path]]]:
    """A service that got pseudonyms, and one that got the names."""
    coded, plain = (tmp_path_factory.mktemp(name) for name in ("coded", "plain"))
    with Deployment(coded) as one, Deployment(plain) as two:
        for deployment in (one, two):
            for model in ("m", "pushed"):
                put = deployment.client.put(f"/v1/models/{model}", json={"task": "multiclass", "classes": 2})  # fmt: skip
                assert put.status_code == 201
        send(one, "m", Pseudonyms(SALT))
        send(two, "m", None)
        yield {"coded": (one, coded), "plain": (two, plain)}


def state(deployment: Deployment, directory: Path) -> dict[str, bytes]:
    """Everything that is on disk (log of the store and snapshot, logs of the service), and everything that can be exported."""
    found = {
        str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and not path.is_socket()
    }  # fmt: skip
    for model in ("m", "pushed"):
        export = deployment.client.get(f"/v1/models/{model}/export", params={"records": "true"})
        assert export.status_code == 200
        found[f"export of {model}"] = export.content
        found[f"report of {model}"] = deployment.client.get(f"/v1/models/{model}/report").content
        found[f"cases of {model}"] = deployment.client.get(f"/v1/models/{model}/cases").content
    return found


def test_labels_find_their_predictions_and_no_name_is_stored(
    pair: dict[str, tuple[Deployment, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The same search finds the names in the service that got them, in the log of its store, its records and its cases."""
    deployment, directory = pair["coded"]
    _push(deployment, tmp_path, monkeypatch)
    eventually(lambda: any("appendonly" in name for name in state(deployment, directory)))
    for name, data in state(deployment, directory).items():
        assert not found_in(data), name
    assert "Planted" not in "".join(capsys.readouterr())
    unit = deployment.get("/v1/models/m/cases")["cases"][0]["case"]
    assert unit in {Pseudonyms(SALT).of(each) for each in CASES}
    plain = {name for name, data in state(*pair["plain"]).items() if found_in(data)}
    assert {"export of m", "cases of m"} <= plain
    assert any("appendonly" in name for name in plain)


def _push(deployment: Deployment, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a file whose name and columns are names, on the command line."""
    file = folder / "Plantedfile.csv"
    with file.open("w", newline="", encoding="utf-8") as opened:
        rows = csv.writer(opened)
        rows.writerow(["patient", "id", "p0", "p1", "label"])
        for i in range(40):
            p = (i % 9 + 1) / 16
            rows.writerow([PATIENTS[i % 2], f"Plantedid {i}", p, 1 - p, i % 2])
    (folder / "salt").write_bytes(SALT)
    monkeypatch.setenv("CALIBRANT_URL", f"http://127.0.0.1:{deployment.port}")
    monkeypatch.setenv("CALIBRANT_PSEUDONYMS", str(folder / "salt"))
    with pytest.raises(SystemExit) as ended:
        main(["push", "pushed", str(file), "--unit", "patient", "--id", "id"])
    assert not ended.value.code
    query = {"metrics": "ece"}
    eventually(lambda: deployment.get("/v1/models/pushed/metrics", **query)["n_labelled"] == 40)


def test_reports_of_images_hold_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of cases, patients and files, NIfTI headers and DICOM tags; one case fails, and its reason names a file."""
    manifest = _manifest(tmp_path)
    (tmp_path / "salt").write_bytes(SALT)
    results: dict[str, Any] = {}
    for kind, options in (("plain", []), ("coded", ["--pseudonyms", str(tmp_path / "salt")])):
        pages = [tmp_path / f"{kind}.html", tmp_path / f"{kind}.json"]
        printed = ""
        for page in pages:
            arguments = ["score", "--manifest", str(manifest), "--roi", "auto", "-o", str(page)]
            with pytest.raises(SystemExit) as ended:
                main([*arguments, "--work", str(tmp_path / f"{kind}-work"), *options])
            assert not ended.value.code
            printed += "".join(capsys.readouterr())
        work = b"".join(path.read_bytes() for path in (tmp_path / f"{kind}-work").iterdir())
        text = [page.read_text() for page in pages]
        results[kind] = [found_in(each.encode()) for each in (*text, printed)], found_in(work)
        numbers = json.loads(text[1])
        assert numbers["left_out"][0]["n"] == 1
        results[f"{kind} numbers"] = numbers["metrics"]["ece"]["value"]
    assert results["plain"] == ([True] * 3, False)
    assert results["coded"] == ([False] * 3, False)
    assert results["plain numbers"] == pytest.approx(results["coded numbers"], abs=1e-12)
    assert Pseudonyms(SALT).of("Plantedcase-1") in (tmp_path / "coded.html").read_text()


def _manifest(folder: Path) -> Path:
    lines = ["case,patient,probability,reader_1,reader_2"]
    for i in range(3):
        p, readers = voxels(i)
        path = folder / f"Plantedfile-{i}.nii.gz"
        picture = nibabel.Nifti1Image(p, np.diag([*SPACING, 1.0]))
        picture.header["descrip"] = b"Plantedheader"
        picture.header["db_name"] = b"Planted"
        nibabel.save(picture, path)
        files = [
            path.name,
            image(folder / f"Plantedreader-{i}.nii.gz", readers[0].astype(np.uint8)),
        ]
        affine = np.diag([*SPACING, 1.0])
        affine[0, 3] = 0.8 if i == 2 else 0.0
        files.append(
            image(folder / f"Plantedother-{i}.nii.gz", readers[1].astype(np.uint8), affine)
        )
        lines.append(",".join([f"Plantedcase-{i}", f"Plantedpatient-{i}", *files]))
    manifest = folder / "Plantedmanifest.csv"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def test_of_a_segmentation_only_voxels_and_their_place_are_read(tmp_path: Path) -> None:
    """DICOM names the patient in its tags; nothing of them is kept."""
    _, readers = voxels(0)
    path = tmp_path / "mask.dcm"
    write_segmentation(path, readers[0], SPACING)
    assert b"made^up" in path.read_bytes()
    found = read_volume(path)
    assert found.array.any() and "made" not in repr(found)
    assert vars(found).keys() == {"path", "array", "affine", "is_partial"}


def test_panes_of_a_table_are_those_of_pseudonyms(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    p, labels = rng.dirichlet(np.ones(2), 40), rng.integers(0, 2, 40)
    units = [PATIENTS[i % 2] for i in range(40)]
    (tmp_path / "rows.json").write_text(json.dumps({"p": p.tolist(), "label": labels.tolist(), "patient": units}))  # fmt: skip
    (tmp_path / "salt").write_bytes(SALT)
    arguments = ["fill", str(tmp_path / "rows.json"), str(tmp_path / "panes"), "--scores", "p", "--unit", "patient"]  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--pseudonyms", str(tmp_path / "salt")])
    assert not ended.value.code
    pane = Pane.from_bytes((tmp_path / "panes" / "000000.pane").read_bytes())
    coded = Pseudonyms(SALT).columns({"units": units})
    assert pane == Pane.fill(p, labels, **coded) != Pane.fill(p, labels)
