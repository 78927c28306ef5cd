"""Histogram updates: increments, running totals, panes, and what is wrong with them."""

import base64

import orjson
import pytest

from calibrant.core.batch import Batch
from calibrant.core.histogram import Histogram
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.ingest.payloads import unpack_updates
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
M = "/v1/models/coarse"
URL = f"{M}/histograms"
BINS = 10


def histogram(**changes) -> dict:
    count = [0.0] * BINS
    count[8], confidence, correct = 4.0, [0.0] * BINS, [0.0] * BINS
    confidence[8], correct[8] = 3.4, 3.0
    sums = {"count": count, "sum_confidence": confidence, "sum_correct": correct}
    return {"kind": "top_label", "bins": BINS, **sums, **changes}


@pytest.fixture
async def coarse(client):
    await client.put(M, json={"classes": ["cat", "dog", "owl"], "grid": BINS})
    return client


async def test_one_update(coarse, inbox):
    body = {
        "batch_id": "h1",
        **histogram(event_time="2026-01-01T00:00:00.5Z", slice={"site": "A"}, unit="p1", n_units=1),
    }
    answer = await coarse.post(URL, json=body)
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
    [delivery] = inbox.deliveries
    assert (delivery.kind, delivery.batch_id) == ("histograms", "h1")
    [update] = unpack_updates(delivery.payload)
    assert (update.slices, update.event_time_us) == ({"site": "A"}, 1767225600_500000)
    assert not update.is_cumulative
    assert Histogram.unpack(update.packed).count[8] == 4.0
    assert (await coarse.post(URL, json=body)).json()["duplicate"] is True
    other = await coarse.post(URL, json={**body, "n_units": 2})
    problem(other, 409, "batch-conflict")


async def test_several_updates_and_running_totals(coarse, inbox):
    total = {"mode": "cumulative", "source": "edge-1", "epoch": 1, "sequence": 7}
    body = {
        "histograms": [
            histogram(**total),
            histogram(kind="class", **{"class": "dog"}, **total),
        ]
    }
    assert (await coarse.post(URL, json=body)).json()["accepted"] == 2
    updates = unpack_updates(inbox.deliveries[0].payload)
    assert [(u.source, u.epoch, u.sequence) for u in updates] == [("edge-1", 1, 7)] * 2
    assert Histogram.unpack(updates[1].packed).class_index == 1


async def test_updates_a_line(coarse, inbox):
    lines = [{"batch_id": "n"}, histogram(), histogram()]
    data = b"\n".join(map(orjson.dumps, lines))
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await coarse.post(URL, content=data, headers=headers)
    assert (answer.json()["accepted"], answer.json()["batch_id"]) == (2, "n")
    lines[2] = histogram(bins=7)
    data = b"\n".join(map(orjson.dumps, lines))
    found = problem(await coarse.post(URL, content=data, headers=headers), 422, "invalid-input")
    assert found["errors"][0]["pointer"] == "/3/bins"


def packed(spec: PaneSpec, **named: list[str]) -> str:
    pane = Pane(spec)
    columns = {name: PREDICTIONS[name] for name in ("probabilities", "labels")} | named
    pane.fill_batch(Batch.from_columns(columns, task=spec.task).batch)
    return base64.b64encode(pane.pack()).decode()


async def test_a_pane_from_the_edge(client, inbox, registry):
    spec = PaneSpec("multiclass", 3)
    answer = await client.post(URL, json={"kind": "pane", "packed": packed(spec)})
    assert answer.status_code == 202, answer.text
    [delivery] = inbox.deliveries
    assert delivery.kind == "pane"
    [update] = unpack_updates(delivery.payload)
    assert Pane.unpack(update.packed).counts["n_labelled"] == 2
    assert registry.configs["default", "coarse"].n_classes == 3
    other = {"kind": "pane", "packed": packed(PaneSpec("segmentation", 3))}
    found = problem(await client.post(URL, json=other), 422, "invalid-input")
    assert found["errors"][0]["rule"] == "spec"


RAW = {"Content-Type": "application/x-calibrant-pane"}


async def test_a_packed_pane_may_be_the_body(client, inbox):
    text = packed(PaneSpec("multiclass", 3))
    at, slices = "2026-11-20T09:00:00Z", {"site": "A", "device": "x"}
    body = {"kind": "pane", "packed": text, "event_time": at, "slice": slices}
    assert (await client.post(URL, json=body)).status_code == 202
    query = {"event_time": at, "slice": "site:A,device:x"}
    data = base64.b64decode(text)
    headers = RAW | {"Idempotency-Key": "p1"}
    answer = await client.post(URL, content=data, headers=headers, params=query)
    assert (answer.status_code, answer.json()["batch_id"]) == (202, "p1")
    in_json, raw = inbox.deliveries
    assert (raw.payload, raw.digest, raw.kind) == (in_json.payload, in_json.digest, "pane")
    alone = await client.post(URL, content=data, headers=RAW)
    assert alone.status_code == 202


@pytest.mark.parametrize(
    ("data", "query", "status", "pointer"),
    [
        (b"", {}, 422, ""),
        (b"noise", {}, 422, ""),
        (base64.b64decode(packed(PaneSpec("segmentation", 3))), {}, 422, ""),
        (None, {"slice": "site"}, 422, "/slice/site"),
        (None, {"slice": "site:A,site:B"}, 422, "/slice"),
        (None, {"event_time": "yesterday"}, 422, "/event_time"),
        (None, {"mode": "delta"}, 422, "/mode"),
    ],
)
async def test_a_packed_body_is_checked_like_any_pane(client, data, query, status, pointer):
    await client.put(M, json={"task": "multiclass", "classes": 3})
    sent = base64.b64decode(packed(PaneSpec("multiclass", 3))) if data is None else data
    answer = await client.post(URL, content=sent, headers=RAW, params=query)
    assert answer.status_code == status, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_the_head_of_other_bodies_is_in_the_body(coarse):
    answer = await coarse.post(URL, json=histogram(), params={"slice": "site:A"})
    assert problem(answer, 422, "invalid-query")["errors"][0]["rule"] == "pane_only"


async def test_a_pane_of_pixels_says_which_belong_together(client):
    await client.put(M, json={"task": "segmentation", "classes": 3})
    for named, status in (
        ({}, 422),
        ({"ids": ["a", "b"]}, 422),
        ({"units": ["u", "u"]}, 202),
        ({"cases": ["s", "s"]}, 202),
    ):
        answer = await client.post(
            URL, json={"kind": "pane", "packed": packed(PaneSpec("segmentation", 3), **named)}
        )
        assert answer.status_code == status, answer.text
        assert [each["rule"] for each in answer.json()["errors"]] == ["units_required"] * (
            status == 422
        )


async def test_a_histogram_makes_no_model(client):
    problem(await client.post(URL, json=histogram()), 404, "model-unknown")


PANE = {"kind": "pane", "packed": packed(PaneSpec("multiclass", 3, BINS))}

BAD = {
    "a bin that counts no prediction": (histogram(n_predictions=[0] * BINS), "/n_predictions/8"),
    "more units than predictions": (
        histogram(n_predictions=[1] * BINS, n_units=BINS + 1),
        "/n_units",
    ),
    "bins of another grid": (histogram(bins=7), "/bins"),
    "wrong length": (histogram(count=[1.0] * 9), "/count"),
    "negative count": (histogram(count=[-1.0] + [0.0] * 9), "/count/0"),
    "confidence outside its bin": (histogram(sum_confidence=[1.0] * 10), "/sum_confidence"),
    "more correct than counted": (histogram(sum_correct=[9.0] * 10), "/sum_correct"),
    "strings": (histogram(count=["1"] * 10), "/count/0"),
    "booleans": (histogram(count=[True] * 10), "/count/0"),
    "nulls": (histogram(count=[None] * 10), "/count/0"),
    "huge numbers": (histogram(count=[10**300] * 10), "/count/0"),
    "no counts": ({"kind": "top_label", "bins": 10}, "/count"),
    "unknown kind": (histogram(kind="bottom"), "/kind"),
    "kind of a wrong type": (histogram(kind=["pane"]), "/kind"),
    "no kind": ({"bins": 10}, "/kind"),
    "unknown class": (histogram(kind="class", **{"class": "cow"}), "/class"),
    "class out of range": (histogram(kind="class", **{"class": 3}), "/class"),
    "class as a boolean": (histogram(kind="class", **{"class": True}), "/class"),
    "unknown field": (histogram(bin=10), "/bin"),
    "unknown mode": (histogram(mode="sum"), "/mode"),
    "totals without source": (histogram(mode="cumulative", epoch=1, sequence=1), "/source"),
    "an increment with a sequence": (histogram(sequence=1), "/sequence"),
    "an epoch that is a string": (
        histogram(mode="cumulative", source="a", epoch="1", sequence=1),
        "/epoch",
    ),
    "a sequence that is a boolean": (
        histogram(mode="cumulative", source="a", epoch=1, sequence=True),
        "/sequence",
    ),
    "a time without offset": (histogram(event_time="2026-01-01T00:00:00"), "/event_time"),
    "a time before 1970": (histogram(event_time="1969-12-31T23:59:59Z"), "/event_time"),
    "a time in the future": (histogram(event_time="2999-01-01T00:00:00Z"), "/event_time"),
    "a slice that is a list": (histogram(slice=["A"]), "/slice"),
    "a slice of two lines": (histogram(slice={"site": "a\nb"}), "/slice/site"),
    "a pane that is no base64": ({"kind": "pane", "packed": "ä"}, "/packed"),
    "a pane that is nothing": ({"kind": "pane", "packed": ""}, "/packed"),
    "a pane that is noise": ({"kind": "pane", "packed": "AAAA"}, "/packed"),
    "a pane that is missing": ({"kind": "pane"}, "/packed"),
    "a pane with a sample as a running total": (
        PANE | {"mode": "cumulative", "source": "a", "epoch": 1, "sequence": 1},
        "/packed",
    ),
    "a pane as a running total without sequence": (
        PANE | {"mode": "cumulative", "source": "a", "epoch": 1},
        "/sequence",
    ),
    "a pane with bins": ({"kind": "pane", "packed": "", "bins": 10}, "/bins"),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_updates(coarse, inbox, name):
    body, pointer = BAD[name]
    found = problem(await coarse.post(URL, json=body), 422, "invalid-input")
    assert found["errors"][0]["pointer"].startswith(pointer)
    good = PANE if body.get("kind") == "pane" else histogram()
    several = {"histograms": [good, body]}
    found = problem(await coarse.post(URL, json=several), 422, "invalid-input")
    assert found["errors"][0]["pointer"].startswith("/histograms/1" + pointer)
    assert not inbox.deliveries
    answer = (await coarse.post(URL, params={"partial": "true"}, json=several)).json()
    assert (answer["accepted"], answer["rejected"], len(answer["errors"])) == (1, 1, 1)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"histograms": []}, "/histograms"),
        ({"histograms": {}}, "/histograms"),
        ({"histograms": [1]}, "/histograms"),
        ({"histograms": [], "bins": 1}, "/bins"),
        ({"updates": [histogram()]}, "/kind"),
        ([], ""),
    ],
)
async def test_bad_lists_of_updates(coarse, body, pointer):
    found = problem(await coarse.post(URL, json=body), 422, "invalid-input")
    assert found["errors"][0]["pointer"] == pointer


async def test_panes_and_histograms_go_apart(coarse):
    found = await coarse.post(URL, json={"histograms": [histogram(), PANE]})
    assert problem(found, 422, "invalid-input")["errors"][0]["rule"] == "mixed_kinds"


async def test_updates_over_too_many_panes(coarse):
    times = [f"2026-01-{1 + i // 24:02d}T{i % 24:02d}:00:00Z" for i in range(70)]
    body = {"histograms": [histogram(event_time=time) for time in times]}
    found = problem(await coarse.post(URL, json=body), 422, "invalid-input")
    assert found["errors"][0]["rule"] == "too_many_panes"
