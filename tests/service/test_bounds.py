"""Work per request is bounded before it is done: bytes, depth, names, quoted violations, panes."""

import base64
import gzip
import io
import threading
import time
import tracemalloc

import numpy as np
import orjson
import pyarrow as pa
import pytest

from calibrant.core import frames, packing
from calibrant.core.pane import Pane
from calibrant.core.pane_envelope import PaneEnvelope
from calibrant.core.spec import PaneSpec
from calibrant_server.service.http.bodies import ARROW
from calibrant_server.service.ingest import batches, model_rules
from calibrant_server.service.ingest.update_packing import MAX_PACKED
from calibrant_server.service.routes import score_histogram
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
MODEL = "/v1/models/digits"
URL, PANES = f"{MODEL}/predictions", f"{MODEL}/histograms"
JSON, NDJSON = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}
SPEC = PaneSpec("binary", 2)


@pytest.fixture
def unpacked(monkeypatch) -> list[int]:
    """Sizes of everything that is decompressed."""
    sizes: list[int] = []
    real = frames.decompressed

    def noted(frame, largest):
        sizes.append(largest)
        return real(frame, largest)

    monkeypatch.setattr(frames, "decompressed", noted)
    return sizes


def bomb(spec: PaneSpec = SPEC) -> str:
    """A packed pane of 11 kB whose only part takes 256 MiB in memory."""
    about = {"accumulator": "counts", "format": 1, "spec": spec.digest}
    part = packing.pack({"a": np.zeros((1 << 28) - 4096, np.uint8)}, about)
    return base64.b64encode(PaneEnvelope(spec, {"counts": part}).pack()).decode()


def panes(*packed: str) -> dict:
    return {"histograms": [{"kind": "pane", "packed": each} for each in packed]}


@pytest.mark.parametrize("partial", ["false", "true"])
async def test_a_pane_that_is_large_in_memory_is_not_decompressed(client, inbox, unpacked, partial):
    await client.put(MODEL, json={"task": "binary"})
    body, small = panes(*[bomb()] * 5), Pane.fill([0.9], [1]).pack()
    unpacked.clear()
    answer = await client.post(PANES, params={"partial": partial}, json=body)
    assert "when unpacked" in problem(answer, 413, "body-too-large")["detail"]
    assert max(unpacked) == 0 and not inbox.deliveries
    answer = await client.post(PANES, json=panes(base64.b64encode(small).decode()))
    assert answer.status_code == 202


async def test_a_pane_of_another_specification_is_not_decompressed(client, unpacked):
    await client.put(MODEL, json={"task": "binary"})
    other = bomb(PaneSpec("multiclass", 3))
    unpacked.clear()
    answer = await client.post(PANES, json=panes(other))
    assert problem(answer, 422, "invalid-input")["errors"][0]["rule"] == "spec"
    assert max(unpacked) == 0


async def test_a_packed_frame_that_is_larger_than_its_arrays_is_refused():
    complete = packing.pack({"a": np.zeros(1 << 20)}, {})
    length = packing._lengths(complete)[0]
    head = packing._PREFIX.size
    text = complete[head : head + length].replace(b"[1048576]", b"[1]")
    frame = complete[head + length :]
    checksum = packing._checksum(packing.FORMAT, text, frame)
    prefix = packing._PREFIX.pack(packing.MAGIC, packing.FORMAT, len(text), len(frame), checksum)
    with pytest.raises(packing.PackingError, match="beyond the limit"):
        packing.unpack(prefix + text + frame)


async def test_panes_are_read_in_a_thread(client, monkeypatch):
    await client.put(MODEL, json={"task": "binary"})
    names, real = set(), PaneEnvelope.read.__func__  # type: ignore[attr-defined]

    def noted(cls, data):
        names.add(threading.current_thread())
        return real(cls, data)

    monkeypatch.setattr(PaneEnvelope, "read", classmethod(noted))
    small = base64.b64encode(Pane.fill([0.9], [1]).pack()).decode()
    assert (await client.post(PANES, json=panes(small))).status_code == 202
    assert names and threading.main_thread() not in names


async def test_packed_contents_of_one_request_are_counted(client):
    await client.put(MODEL, json={"task": "binary"})
    empty = base64.b64encode(PaneEnvelope(SPEC, {}).pack()).decode()
    answer = await client.post(
        PANES, params={"partial": "true"}, json=panes(*[empty] * (MAX_PACKED + 1))
    )
    assert str(MAX_PACKED) in problem(answer, 413, "body-too-large")["detail"]


async def test_a_confidence_histogram_of_many_fine_bins_is_not_made(client):
    about = {"confidence_histogram": 1, "n_classes": 2, "n_bins": 1 << 20, "n_samples": 0}
    arrays = {"places": np.zeros(0, np.int64), "mass": np.zeros(0), "exact": np.zeros(4)}
    packed = packing.pack(arrays, about | {"is_weighted": False, "has_predictions": False})
    body = {"kind": "confidence", "packed": base64.b64encode(packed).decode()}
    await client.put(MODEL, json={"task": "binary"})
    problem(await client.post(PANES, json=body), 413, "body-too-large")
    score = {"packed": body["packed"]}
    problem(await client.post("/v1/score/confidence-histogram", json=score), 413, "body-too-large")


@pytest.mark.parametrize("url", [URL, PANES, f"{MODEL}/labels", "/v1/score"])
async def test_a_repeated_key_is_found_in_one_pass(client, url):
    n = 40_000  # in quadratic time: a minute
    body = b"{" + b",".join(b'"%x":1' % i for i in range(n)) + b',"%x":1}' % (n - 1)
    await client.put(MODEL, json={"task": "binary"})
    started = time.process_time()
    [error] = problem(await client.post(url, content=body, headers=JSON), 400, "malformed-body")[
        "errors"
    ]
    assert time.process_time() - started < 5
    assert (error["pointer"], error["rule"]) == (f"/{n - 1:x}", "repeated_key")


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("levels", [33, 600, 1000])
@pytest.mark.parametrize("url", [URL, PANES, f"{MODEL}/labels", "/v1/score", "PUT", "PATCH"])
async def test_deep_documents_are_refused(client, caplog, url, levels):
    made = await client.put(MODEL, json={"task": "binary"})
    method, url = (url, MODEL) if url.isupper() else ("POST", url)
    headers = JSON | ({"If-Match": made.headers["etag"]} if method != "POST" else {})
    if method == "PATCH":
        headers |= {"Content-Type": "application/merge-patch+json"}
    answer = await client.request(method, url, content=deep(levels), headers=headers)
    problem(answer, 400, "malformed-body")
    assert len(caplog.text) < 2000


@pytest.mark.parametrize(
    ("body", "kind", "start"),
    [
        (b'{"probabilities": [[0.5, 0.5]], "batch_id": "b', "application/json", "The body is not"),
        (b'{"probability": [0.5, 0.5]\n' * 40, "application/x-ndjson", "Line 1 is not"),
    ],
    ids=["a string without an end", "lines without an end"],
)
async def test_a_body_that_ends_early_is_not_called_deep(client, body, kind, start):
    await client.put(MODEL, json={"task": "binary"})
    answer = await client.post(URL, content=body, headers={"Content-Type": kind})
    detail = problem(answer, 400, "malformed-body")["detail"]
    assert detail.startswith(start) and "nested" not in detail


async def test_deep_rejected_rows_are_refused(client):
    rows = b"[" * 300 + b"]" * 300
    body = b'{"confidences":[0.5,' + rows + b'],"labels":[1,1]}'
    answer = await client.post(URL, params={"partial": "true"}, content=body, headers=JSON)
    problem(answer, 400, "malformed-body")


@pytest.mark.parametrize(
    "body",
    [
        b'{"confidences":[0.5],"labels":[1],"ids":["' + b"[" * 300 + b'"]}',
        b'{"confidences":[0.5],"labels":[1],"ids":["\\"' + b"[" * 300 + b'"]}',
        b'{"confidences":[0.5],"labels":[1],"ids":["' + b"]" * 300 + b'"]}',
    ],
)
async def test_brackets_in_texts_have_no_depth(client, body):
    [error] = problem(await client.post(URL, content=body, headers=JSON), 422, "invalid-input")[
        "errors"
    ]
    assert error["rule"] == "name"


async def test_depth_is_counted_past_brackets_in_texts(client):
    body = b'{"]]]]]]]]":"[","a":' * 33 + b"1" + b"}" * 33
    problem(await client.post(URL, content=body, headers=JSON), 400, "malformed-body")


async def test_violations_of_slices_quote_few_names(client):
    line = b'{"probability":[0.5,0.5],"label":0,"slice":{"k%d":"v"}}'
    body = b"\n".join(line % i for i in range(6000))
    headers = NDJSON | {"Content-Encoding": "gzip"}
    answer = await client.post(URL, content=gzip.compress(body), headers=headers)
    found = problem(answer, 422, "invalid-input")
    assert "6000 violations in all; the first 100 are listed" in found["detail"]
    assert len(answer.content) < 100_000


MANY = {
    "invalid scores": {"confidences": [2] * 5000, "labels": [1] * 5000},
    "invalid labels": {"confidences": [0.5] * 5000, "labels": [7] * 5000},
    "no labels": {"confidences": [0.5] * 5000},
    "no objects": {"predictions": [1] * 5000},
    "invalid names": {"confidences": [0.5] * 5000, "labels": [1] * 5000, "ids": ["a\tb"] * 5000},
    "unknown fields": {f"x{i}": 1 for i in range(5000)},
}


@pytest.mark.parametrize("partial", ["false", "true"])
@pytest.mark.parametrize("name", MANY)
async def test_violations_are_capped_and_counted(client, name, partial):
    answer = await client.post(URL, params={"partial": partial}, json=MANY[name])
    found = problem(answer, 422, "invalid-input")
    assert len(found["errors"]) == 100
    assert "(5000 violations in all; the first 100 are listed)" in found["detail"]


async def test_the_first_rows_are_listed_whichever_rule_was_checked_first(client):
    n = 3000
    body = {"confidences": [0.5] * 50 + [2] * (n - 50), "labels": [7] * 50 + [1] * (n - 50)}
    found = problem(await client.post(URL, json=body), 422, "invalid-input")
    assert f"{n} violations" in found["detail"]
    expected = [f"/labels/{i}" for i in range(50)] + [f"/confidences/{i}" for i in range(50, 100)]
    assert [each["pointer"] for each in found["errors"]] == expected


async def test_labels_cap_their_violations(client):
    await client.put(MODEL, json={"task": "binary"})
    body = {"ids": ["a"] * 3000, "labels": [[]] * 3000}
    found = problem(await client.post(f"{MODEL}/labels", json=body), 422, "invalid-input")
    assert len(found["errors"]) == 100 and "3000 violations" in found["detail"]


async def test_a_long_key_is_quoted_in_part(client):
    for body in (b'{"%s":1}', b'{"%s":1,"%s":1}'):
        key = b"k" * 100_000
        answer = await client.post(URL, content=body.replace(b"%s", key), headers=JSON)
        assert answer.status_code in (400, 422) and len(answer.content) < 2000


@pytest.mark.parametrize("shape", ["values", "keys", "times"])
async def test_panes_are_counted_before_rows_are_divided(client, shape):
    n = 4000
    columns: dict = {"confidences": [0.5] * n, "labels": [1] * n}
    if shape == "values":
        columns["slices"] = {"k": [f"v{i}" for i in range(n)]}
    elif shape == "keys":
        columns = {"confidences": [0.5], "labels": [1]}
        columns["slices"] = {f"k{i}": ["v"] for i in range(n)}
    else:
        hours = ((i // 24 // 28, i // 24 % 28, i % 24) for i in range(n))
        columns["event_times"] = [f"{1990 + y}-01-{d + 1:02d}T{h:02d}:00:00Z" for y, d, h in hours]
    [error] = problem(await client.post(URL, json=columns), 422, "invalid-input")["errors"]
    assert error["rule"] == "too_many_panes"


async def test_values_of_a_compressed_body_are_counted(client):
    body = orjson.dumps({"ids": ["ab"] * 700_000})
    headers = JSON | {"Content-Encoding": "gzip"}
    answer = await client.post(URL, content=gzip.compress(body), headers=headers)
    assert "values" in problem(answer, 413, "body-too-large")["detail"]


@pytest.mark.parametrize(
    "slices", [{"site": [1] * 100_000}, {f"k{i}": 1 for i in range(50_000)}, {"site": [1] * 1000}]
)
async def test_slices_of_settings_are_counted_before_each_is_checked(client, slices):
    tracemalloc.start()
    try:
        answer = await client.put(MODEL, json={"task": "binary", "slices": slices})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    problem(answer, 422, "invalid-input")
    assert peak < 25e6 and len(answer.content) < 1500


async def test_rows_with_ids_of_one_batch_are_bounded(client, inbox, monkeypatch):
    """The partition joins them with what it retains, while its other batches wait."""
    monkeypatch.setattr(model_rules, "MAX_ROWS_BY_ID", 3)
    monkeypatch.setattr(batches, "MAX_ROWS_BY_ID", 3)
    for n in (3, 4):
        ids = [f"i{i}" for i in range(n)]
        rows = {"probabilities": [[0.5, 0.3, 0.2]] * n, "ids": ids}
        table = pa.table({"ids": ids, "probabilities": pa.array(rows["probabilities"])})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        answers = [
            await client.post(URL, json=rows),
            await client.post(URL, content=sink.getvalue(), headers={"Content-Type": ARROW}),
            await client.post(f"{MODEL}/labels", json={"ids": ids, "labels": [0] * n}),
        ]
        for answer in answers:
            if n == 3:
                assert answer.status_code == 202, answer.text
            else:
                assert "at most 3" in problem(answer, 413, "body-too-large")["detail"]


async def test_a_surface_of_many_bins_is_rejected_before_it_is_computed(client, monkeypatch):
    monkeypatch.setattr(score_histogram, "MAX_BINS_OF_SURFACE", 4)
    own, rest = [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]
    body = {"label": [[rest, own], [own[::-1], rest[::-1]]]}
    url = "/v1/score/confidence-histogram"
    assert (await client.post(url, json=body)).status_code == 200
    rejected = await client.post(url, json=body, params={"surface": "true"})
    [error] = problem(rejected, 422, "invalid-query")["errors"]
    assert (error["pointer"], error["rule"]) == ("/surface", "too_many_bins")
    assert "Received 6 bins" in error["detail"]
