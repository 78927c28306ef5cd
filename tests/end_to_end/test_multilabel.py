"""Multi-label models through the complete service: the library's numbers, labels that arrive later, repeats, corrections and moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrant as cal
from calibrant.cli import main
from tests.end_to_end.deployment import Deployment

RNG = np.random.default_rng(12)
N, NAMES = 90, ["car", "dog, small", "sky"]
P = RNG.uniform(0.03, 0.97, (N, 3))
Y = (RNG.uniform(size=(N, 3)) < P**1.3).astype(float)
IDS = [f"img {i}" for i in range(N)]
METRICS = "ece,brier,nll,accuracy"
SETTINGS = {"task": "multilabel", "classes": NAMES}
MERGED = {"Prefer": "wait=20"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder: Path = tmp_path_factory.mktemp("multilabel")
    with Deployment(folder) as found:
        yield found


@pytest.fixture(scope="module")
def client(service: Deployment) -> Iterator[cal.Client]:
    with cal.Client(f"http://127.0.0.1:{service.port}") as found:
        yield found


def made(service: Deployment, name: str, **more: Any) -> None:
    response = service.client.put(f"/v1/models/{name}", json=SETTINGS | more)
    assert response.status_code == 201, response.text
    shown = response.json()
    assert (shown["task"], shown["classes"], shown["n_classes"]) == ("multilabel", NAMES, 3)
    assert shown["slices"] == {}


def naive(scores: np.ndarray, labels: np.ndarray) -> dict[str, list[float]]:
    """Return each metric of each label, by the definitions alone: 15 bins (a, b], the first one with 0."""
    found: dict[str, list[float]] = {slug: [] for slug in METRICS.split(",")}
    for k in range(scores.shape[1]):
        known = ~np.isnan(labels[:, k])
        p, y = scores[known, k], labels[known, k]
        bins = np.clip(np.ceil(p * 15).astype(int) - 1, 0, 14)
        gaps = [abs((p - y)[bins == m].sum()) for m in range(15)]
        found["ece"].append(sum(gaps) / len(p))
        found["brier"].append(2 * np.mean((p - y) ** 2))
        found["nll"].append(-np.mean(np.log(np.where(y == 1, p, 1 - p))))
        found["accuracy"].append(np.mean((p > 0.5) == y))
    return found


def check(model: Any, labels: np.ndarray, scores: np.ndarray = P) -> None:
    """Compare with naive sums, and with the library from the same rows."""
    found = model.metrics(METRICS)
    own = cal.evaluate(scores, labels, METRICS, task="multilabel", classes=NAMES, units=IDS[: len(scores)])  # fmt: skip
    assert isinstance(found, cal.MultilabelReport) and isinstance(own, cal.MultilabelReport)
    assert list(found.labels) == NAMES
    for slug, values in naive(scores, labels).items():
        got = [each[slug].value for each in found.labels.values()]
        assert [*got, found[slug].value] == pytest.approx([*values, np.mean(values)], abs=1e-9)
    for slug in METRICS.split(","):
        assert found[slug].value == pytest.approx(own[slug].value, abs=1e-9)
        for name in NAMES:
            mine, theirs = found.labels[name][slug], own.labels[name][slug]
            assert (mine.value, mine.n) == (pytest.approx(theirs.value, abs=1e-9), theirs.n)
    counts = ("n_predictions", "n_labelled", "n_ratings", "n_units")
    assert [getattr(found, each) for each in counts] == [getattr(own, each) for each in counts]
    fitted = model.by_label("temperature")
    for name in NAMES:
        expected = float(own.temperatures[name])
        assert float(fitted[name]) == pytest.approx(expected, rel=2e-5)


def test_labels_have_the_numbers_of_the_library(service: Deployment, client: cal.Client) -> None:
    made(service, "tags")
    model = client.model("tags")
    early = Y.copy()
    early[20:, 1] = np.nan
    early[50:] = np.nan
    first = model.send(probabilities=P, labels=early, ids=IDS, batch_id="first", wait=20)
    assert (first.status, first.accepted, first.rejected) == ("merged", 3 * N, 0)
    again = model.send(probabilities=P, labels=early, ids=IDS, batch_id="first", wait=20)
    assert again.duplicate
    check(model, early)
    late = np.where(np.isnan(early), Y, np.nan)[20:]
    receipt = model.label(IDS[20:], late, wait=20)
    assert (receipt.joined, receipt.waiting) == (int((~np.isnan(late)).sum()), 0)
    check(model, Y)


def test_labels_may_arrive_before_their_rows(service: Deployment, client: cal.Client) -> None:
    made(service, "before")
    model = client.model("before")
    receipt = model.label(IDS, Y, wait=20)
    assert (receipt.joined, receipt.waiting) == (0, 3 * N)
    model.send(probabilities=P, ids=IDS, wait=20)
    check(model, Y)


def test_a_rater_corrects_one_label_of_a_row(service: Deployment, client: cal.Client) -> None:
    made(service, "corrected")
    model = client.model("corrected")
    model.send(probabilities=P, ids=IDS, wait=20)
    wrong = Y.copy()
    wrong[:9, 2] = 1 - wrong[:9, 2]
    model.label(IDS, wrong, raters=["ann"] * N, wait=20)
    check(model, wrong)
    right = np.full((9, 3), np.nan)
    right[:, 2] = Y[:9, 2]
    model.label(IDS[:9], right, raters=["ann"] * 9, wait=20)
    check(model, Y)


def test_a_deleted_row_has_no_label_left(service: Deployment, client: cal.Client) -> None:
    made(service, "deleted")
    model = client.model("deleted")
    model.send(probabilities=P, labels=Y, ids=IDS, wait=20)
    response = service.client.delete("/v1/models/deleted/predictions/img 89", headers=MERGED)
    assert (response.status_code, response.json()["status"]) == (200, "merged")
    check(model, Y[:-1], P[:-1])
    assert model.send(probabilities=P[-1:], labels=Y[-1:], ids=IDS[-1:], wait=20).status == "merged"
    check(model, Y[:-1], P[:-1])


def test_a_moved_model_has_the_same_numbers(service: Deployment, client: cal.Client) -> None:
    made(service, "origin")
    model = client.model("origin")
    model.send(probabilities=P, ids=IDS, wait=20)
    model.label(IDS[:60], Y[:60], wait=20)
    before = model.metrics(METRICS).to_dict()
    exported = service.client.get("/v1/models/origin/export", params={"records": "true"})
    assert exported.status_code == 200
    service.client.delete("/v1/models/origin")
    moved = service.client.post(
        "/v1/models/origin/import",
        content=exported.content,
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert moved.status_code in (200, 201), moved.text
    after = model.metrics(METRICS).to_dict()
    assert after["metrics"] == before["metrics"]
    model.label(IDS[60:], Y[60:], wait=20)
    check(model, Y)


def test_rows_without_ids_and_logits_make_a_model(service: Deployment, client: cal.Client) -> None:
    logits = RNG.normal(size=(12, 40))
    labels = (RNG.uniform(size=(12, 40)) < 0.5).astype(float)
    labels[0, 7] = np.nan
    model = client.model("many")
    for _ in range(2):
        model.send(logits=logits, labels=labels, batch_id="only", wait=20, task="multilabel")
    p = 1 / (1 + np.exp(-logits))
    found = model.metrics("brier")
    expected = np.nanmean(2 * (p - labels) ** 2, axis=0)
    assert isinstance(found, cal.MultilabelReport)
    assert list(found.labels) == [str(k) for k in range(40)]
    assert [each["brier"].value for each in found.labels.values()] == pytest.approx(list(expected))
    assert found["brier"].value == pytest.approx(expected.mean(), abs=1e-9)
    assert (found.n_predictions, found.n_units) == (12, 12)


def test_the_asynchronous_client_has_the_same(service: Deployment, client: cal.Client) -> None:
    made(service, "asynchronous")

    async def run() -> tuple[Any, Any]:
        async with cal.AsyncClient(f"http://127.0.0.1:{service.port}") as found:
            model = found.model("asynchronous")
            await model.send(probabilities=P, ids=IDS, wait=20)
            await model.label(IDS, Y, wait=20)
            return await model.metrics(METRICS), await model.by_label("calibration_map", method="platt")  # fmt: skip

    report, maps = asyncio.run(run())
    assert report.to_dict() == client.model("asynchronous").metrics(METRICS).to_dict()
    assert list(maps) == NAMES and all(each.n == N for each in maps.values())
    check(client.model("asynchronous"), Y)


def test_reads_have_every_label_or_one(service: Deployment, client: cal.Client) -> None:
    made(service, "reads")
    model = client.model("reads")
    model.send(probabilities=P, labels=Y, wait=20)
    path = "/v1/models/reads"
    for read in ("metrics", "temperature", "reliability", "calibration-map?method=isotonic", "roc"):
        every = service.client.get(f"{path}/{read}").json()
        assert list(every["labels"]) == NAMES, read
        mark = "&" if "?" in read else "?"
        for name in NAMES:
            one = service.client.get(f"{path}/{read}{mark}slice=label:{name}").json()
            assert one == every["labels"][name], read
    wanted = {"Accept": "text/csv"}
    table = service.client.get(f"{path}/metrics?metrics=ece", headers=wanted)
    rows = [line.split(",") for line in table.text.splitlines()[1:]]
    assert [row[1] for row in rows] == ["label:car", '"label:dog', "label:sky", ""]
    drawn = service.client.get(f"{path}/reliability?format=svg")
    assert drawn.status_code == 200, drawn.text
    assert all(name in drawn.text for name in NAMES)
    for read in ("roc?format=svg", "cases", "report"):
        response = service.client.get(f"{path}/{read}")
        assert response.status_code == 422, read
        assert response.json()["errors"][0]["rule"] == "label_required"
    response = service.client.post(f"{path}/maps", json={"method": "platt"})
    assert response.status_code == 422
    response = service.client.post(f"{path}/maps", json={"method": "platt", "slice": "label:car"})
    assert response.status_code == 201, response.text
    assert service.client.get("/models/reads").status_code == 200
    with pytest.raises(ValueError, match="slice='label:car'"):
        model.temperature()
    one = model.temperature(slice="label:sky")
    assert float(one) == pytest.approx(float(model.by_label("temperature")["sky"]))


def test_every_class_is_in_one_document_and_figure(service: Deployment, client: cal.Client) -> None:
    rng = np.random.default_rng(5)
    p, names = rng.dirichlet([1, 1, 1], 200), ["cat", "Zürich / Nord", "0"]
    labels = [names[each] for each in rng.integers(0, 3, 200)]
    path = "/v1/models/each"
    assert service.client.put(path, json={"classes": names}).status_code == 201
    client.model("each").send(probabilities=p, labels=labels, wait=20)
    found = service.client.get(f"{path}/reliability?scope=each_class").json()
    for k, name in enumerate(names):
        rows = [each for each in found["classes"][name]["table"] if each["count"]]
        own = cal.reliability(p[:, k], [each == name for each in labels])
        assert [each["accuracy"] for each in rows] == pytest.approx(
            own.bin_accuracy[own.bin_count > 0], abs=1e-12
        )
    assert client.model("each").by_label("reliability", scope="each_class").keys() == set(names)
    drawn = service.client.get(f"{path}/reliability?scope=each_class&format=svg")
    assert drawn.status_code == 200 and "Zürich / Nord" in drawn.text
    for query in ("scope=each_class&format=csv", "scope=class:cow"):
        headers = {"Accept": "text/csv"} if "csv" in query else {}
        query = query.removesuffix("&format=csv")
        refused = service.client.get(f"{path}/reliability?{query}", headers=headers)
        assert refused.status_code == 422, refused.text


def test_every_entrance_has_the_averages_of_plain_sums(
    service: Deployment, client: cal.Client, tmp_path: Path
) -> None:
    labels = Y.copy()
    labels[::7, 1] = np.nan
    labels[:40, 2] = np.nan
    np.save(tmp_path / "p.npy", P)
    np.save(tmp_path / "y.npy", labels)
    files = [str(tmp_path / each) for each in ("p.npy", "y.npy")]
    written = tmp_path / "out.json"
    with pytest.raises(SystemExit, match="0"):
        main(["score", *files, "--task", "multilabel", "--metrics", METRICS, "-o", str(written)])
    body = {
        "probabilities": P.tolist(),
        "labels": [[None if np.isnan(y) else y for y in row] for row in labels],
        "classes": NAMES,
    }
    params = {"task": "multilabel", "metrics": METRICS}
    made(service, "averages")
    client.model("averages").send(probabilities=P, labels=labels, wait=20)
    library = cal.evaluate(P, labels, METRICS, task="multilabel", classes=NAMES)
    found = {
        "library": library.to_dict(),
        "command": json.loads(written.read_text()),
        "score": service.client.post("/v1/score", json=body, params=params).json(),
        "state": service.client.get("/v1/models/averages/metrics", params={"metrics": METRICS}).json(),
    }  # fmt: skip
    for entrance, each in found.items():
        assert "labels" in each, (entrance, each)
        for slug, values in naive(P, labels).items():
            own = [label["metrics"][slug]["value"] for label in each["labels"].values()]
            assert own == pytest.approx(values, abs=1e-9), (entrance, slug)
            mean = each["metrics"][slug]["value"]
            assert mean == pytest.approx(np.mean(values), abs=1e-9), (entrance, slug)
