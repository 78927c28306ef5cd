"""Arrow streams: the same batch as JSON, and bounds that hold before a stream is decoded."""

import io
import random
from datetime import UTC, datetime

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import ipc

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.http import arrow_sizes, bodies
from calibrant_server.service.http.bodies import ARROW, Body
from calibrant_server.service.http.problems import BodyTooLarge, MalformedBody, Problem
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.settings import Settings
from tests.service.conftest import client_of, problem

pytestmark = pytest.mark.anyio
URL, LABELS = "/v1/models/digits/predictions", "/v1/models/digits/labels"
HEADERS = {"Content-Type": ARROW}
N, K = 40, 3
MIB = 1024 * 1024


def stream(table: pa.Table, compression: str | None = None, chunk: int | None = None) -> bytes:
    sink = io.BytesIO()
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def fixed(matrix: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def scores(dtype: str = "f8", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(K, 0.5), N).astype(dtype)


LABEL_ROWS = [[0], [1, 1, 2], None, [2, 0]] * (N // 4)
TIMES = [datetime(2026, 11, 20, 9, 0, i % 2, tzinfo=UTC) for i in range(N)]
SITES = ["a" if i % 3 else "b" for i in range(N)]
AS_JSON = {
    "labels": LABEL_ROWS,
    "ids": [f"i{i}" for i in range(N)],
    "units": [f"u{i % 5}" for i in range(N)],
    "event_times": [each.isoformat().replace("+00:00", "Z") for each in TIMES],
    "slices": {"site": SITES, "device": ["x"] * N},
    "weights": [1.0 + i % 2 for i in range(N)],
}


def complete(matrix: np.ndarray) -> pa.Table:
    site = pa.array(SITES).dictionary_encode()
    slices = pa.StructArray.from_arrays([site, pa.array(["x"] * N)], ["site", "device"])
    return pa.table(
        {
            "probabilities": fixed(matrix),
            "labels": pa.array(LABEL_ROWS, pa.list_(pa.int8())),
            "ids": AS_JSON["ids"],
            "units": pa.array(AS_JSON["units"]).dictionary_encode(),
            "event_times": pa.array(TIMES, pa.timestamp("us", "UTC")),
            "slices": slices,
            "weights": pa.array(AS_JSON["weights"], pa.float32()),
        }
    )


async def accepted(client, inbox, data: bytes, url: str = URL, **headers):
    response = await client.post(url, content=data, headers=HEADERS | headers)
    assert response.status_code == 202, response.text
    return inbox.deliveries[-1]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
async def test_a_stream_is_the_same_batch_as_json(client, inbox, compression, chunk, dtype):
    matrix = scores(dtype)
    sent = await accepted(client, inbox, stream(complete(matrix), compression, chunk))
    body = {"probabilities": matrix.astype(np.float64).tolist(), **AS_JSON}
    await client.post(URL, json=body)
    assert (sent.payload, sent.digest) == (
        inbox.deliveries[-1].payload,
        inbox.deliveries[-1].digest,
    )
    assert sent.n_records == N


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("logits", pa.array(np.log(scores()).tolist(), pa.list_(pa.float32()))),
        ("confidences", pa.array(scores()[:, 0], pa.float32())),
        ("probabilities", pa.array(scores()[:, 0])),
        ("probabilities", pa.array(scores().tolist(), pa.large_list(pa.float64()))),
    ],
)
async def test_every_form_of_scores_is_read(client, inbox, column, values):
    table = pa.table({column: values, "labels": pa.array([0, 1] * (N // 2), pa.uint8())})
    sent = await accepted(client, inbox, stream(table))
    await client.post(URL, json={name: each.to_pylist() for name, each in zip(
        table.column_names, table.columns, strict=True)})  # fmt: skip
    assert sent.payload == inbox.deliveries[-1].payload


async def test_counts_and_names_of_classes_are_read(client, inbox):
    await client.put("/v1/models/digits", json={"task": "multiclass", "classes": ["a", "b", "c"]})
    counts = np.random.default_rng(1).integers(0, 3, (N, K)) + 1
    by_count = {"probabilities": fixed(scores()), "label_counts": fixed(counts.astype("i4"))}
    sent = await accepted(client, inbox, stream(pa.table(by_count)))
    body = {"probabilities": scores().tolist(), "label_counts": counts.tolist()}
    await client.post(URL, json=body)
    assert sent.payload == inbox.deliveries[-1].payload
    named = pa.table({"probabilities": fixed(scores()), "labels": ["a", "c"] * (N // 2)})
    sent = await accepted(client, inbox, stream(named))
    await client.post(
        URL, json={"probabilities": scores().tolist(), "labels": ["a", "c"] * (N // 2)}
    )
    assert sent.payload == inbox.deliveries[-1].payload


async def test_a_stream_of_polars_with_string_views_is_read(client, inbox):
    frame = pl.DataFrame(
        {"probabilities": scores().tolist(), "labels": [0] * N, "ids": AS_JSON["ids"]}
    )
    sink = io.BytesIO()
    frame.write_ipc_stream(sink, compression="zstd")
    assert (await accepted(client, inbox, sink.getvalue())).n_records == N


async def test_the_batch_id_is_in_the_schema_or_in_the_header(client, inbox):
    table = pa.table({"probabilities": fixed(scores()), "labels": [0] * N})
    named = table.replace_schema_metadata({"batch_id": "b1"})
    assert (await accepted(client, inbox, stream(named))).batch_id == "b1"
    header = {"Idempotency-Key": "b2"}
    assert (await accepted(client, inbox, stream(table), **header)).batch_id == "b2"
    response = await client.post(URL, content=stream(named), headers=HEADERS | header)
    assert problem(response, 422, "invalid-name")["errors"][0]["rule"] == "same_id"


async def test_a_coded_body_is_decoded_first(client, inbox):
    import gzip

    data = gzip.compress(stream(complete(scores())))
    sent = await accepted(client, inbox, data, **{"Content-Encoding": "gzip"})
    assert sent.n_records == N


async def test_invalid_rows_are_named_and_may_be_left_out(client, inbox):
    matrix = scores()
    matrix[3] = 2.0
    table = pa.table({"probabilities": fixed(matrix), "labels": [0, None] + [1] * (N - 2)})
    response = await client.post(URL, content=stream(table), headers=HEADERS)
    errors = problem(response, 422, "invalid-input")["errors"]
    assert [(each["pointer"], each["rule"]) for each in errors] == [("/probabilities/3", "range")]
    ids = table.append_column("ids", pa.array(AS_JSON["ids"]))
    response = await client.post(f"{URL}?partial=true", content=stream(ids), headers=HEADERS)
    assert (response.json()["accepted"], response.json()["rejected"]) == (N - 1, 1)


async def test_labels_by_id_are_the_same_as_in_json(client, inbox):
    await client.put("/v1/models/digits", json={"task": "multiclass", "classes": 3})
    rows = {
        "ids": ["i1", "i2", "i3"],
        "labels": [[2, 2], [1], [None]],
        "raters": [["r1", None], ["r1"], ["r2"]],
        "revision": [[0, None], [1], [2]],
    }
    table = pa.table(
        {
            "ids": pa.array(rows["ids"]).dictionary_encode(),
            "labels": pa.array(rows["labels"], pa.list_(pa.int16())),
            "raters": rows["raters"],
            "revision": rows["revision"],
        }
    )
    sent = await accepted(client, inbox, stream(table, "zstd"), LABELS)
    await client.post(LABELS, json=rows)
    assert (sent.payload, sent.digest) == (
        inbox.deliveries[-1].payload,
        inbox.deliveries[-1].digest,
    )
    unknown = stream(table.append_column("score", pa.array([1, 2, 3])))
    response = await client.post(LABELS, content=unknown, headers=HEADERS)
    assert problem(response, 422, "invalid-input")["errors"][0]["pointer"] == "/score"


@pytest.mark.parametrize(
    ("column", "values", "rule"),
    [
        ("scores", [1.0] * N, "unknown_field"),
        ("event_times", pa.array(TIMES, pa.timestamp("us")), "time_zone"),
        ("weights", [b"x"] * N, "arrow_type"),
        ("slices", ["a"] * N, "object"),
        ("slices", pa.array([None, *[{"site": "a"}] * (N - 1)]), "slices"),
        ("ids", ["a\tb", *AS_JSON["ids"][1:]], "name"),
    ],
)
async def test_a_column_of_another_kind_is_named(client, column, values, rule):
    table = pa.table({"probabilities": fixed(scores()), "labels": [0] * N, column: values})
    response = await client.post(URL, content=stream(table), headers=HEADERS)
    assert response.status_code in (400, 422)
    [error] = response.json()["errors"]
    assert error["rule"] == rule and error["pointer"].startswith(f"/{column}")


@pytest.mark.parametrize("url", [URL, LABELS])
@pytest.mark.parametrize(
    ("ids", "zone"),
    [
        (pa.array(TIMES[:2], pa.timestamp("us", "UTC")), b"XYZ\0"),
        (pa.array(TIMES[:2], pa.timestamp("us", "UTC")), b"\xffTC\0"),
        (pa.array(TIMES[:2], pa.timestamp("us", "UTC")).dictionary_encode(), b"XYZ\0"),
        (pa.array([1, 2**60], pa.timestamp("s")), b"UTC\0"),
    ],
)
async def test_times_that_python_cannot_have_are_rejected_as_names(client, url, ids, zone):
    await client.put("/v1/models/digits", json={"task": "binary"})
    table = pa.table({"ids": ids, "labels": [0, 1]})
    if url == URL:
        table = table.append_column("confidences", pa.array([0.5, 0.5]))
    data = stream(table).replace(b"UTC\0", zone)
    response = await client.post(url, content=data, headers=HEADERS)
    assert response.status_code in (400, 422), response.text


async def test_without_the_packages_the_extra_is_named(client, monkeypatch):
    bodies.reads_arrow.cache_clear()
    monkeypatch.setattr(bodies, "ARROW_PACKAGES", ("a_package_that_is_not_installed",))
    response = await client.post(URL, content=stream(complete(scores())), headers=HEADERS)
    assert "calibrant[server,ipc]" in problem(response, 415, "media-type-unsupported")["detail"]
    bodies.reads_arrow.cache_clear()


async def test_other_operations_take_no_streams(client):
    for path in ("/v1/score/map", "/v1/models/digits/histograms"):
        response = await client.post(path, content=stream(complete(scores())), headers=HEADERS)
        problem(response, 415, "media-type-unsupported")


PLAIN = stream(complete(scores()), "zstd", 20)


def read(data: bytes, **limits) -> None:
    """Check and read a stream as the service does."""
    settings = Settings(**limits)
    limit = bodies.decoded_limit(len(data), settings)
    arrow_sizes.arrow_sizes(data, settings.max_rows, limit)
    read_columns(Body(ARROW, data), settings)


def test_a_stream_that_ends_anywhere_early_is_rejected():
    for end in range(0, len(PLAIN), 3):
        with pytest.raises((MalformedBody, BodyTooLarge)):
            read(PLAIN[:end])
    with pytest.raises(MalformedBody, match="bytes follow"):
        read(PLAIN + bytes(8))


def test_a_forged_size_of_a_buffer_is_rejected_before_anything_is_allocated():
    table = pa.table({"probabilities": fixed(scores()), "labels": [0] * N})
    data = bytearray(stream(table, "zstd"))
    stated = (8 * N).to_bytes(8, "little")  # of the labels, which compress well
    place = data.rindex(stated + bytes.fromhex("28b52ffd"))
    for forged in (2**62, 2**40, 65 * MIB):
        data[place : place + 8] = forged.to_bytes(8, "little")
        with pytest.raises(BodyTooLarge, match="when decoded"):
            read(bytes(data))
    data[place : place + 8] = (-5).to_bytes(8, "little", signed=True)
    with pytest.raises(MalformedBody, match="negative"):
        read(bytes(data))


def many(n: int) -> pa.Table:
    return pa.table({"confidences": np.full(n, 0.5), "labels": pa.array([0] * n, pa.int8())})


HUGE = 3_000_000


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (many(2000), "2000 rows"),
        (pa.table({"labels": pa.nulls(1000), "confidences": [0.5] * 1000,
                   "weights": pa.array([[0] * 1000] * 1000, pa.list_(pa.int8()))}), "when decoded"),
        (pa.table({f"c{i}": [1.0] for i in range(101)}), "columns"),
        (pa.table({"labels": pa.array([[[[[1]]]]])}), "levels"),
        (pa.table({"ids": pa.DictionaryArray.from_arrays(
            np.zeros(1000, "i4"), ["x" * 100_000])}), "repetitions"),
        (pa.table({"ids": pa.DictionaryArray.from_arrays(
            np.zeros(1000, "i4"), pa.array(map(str, range(200_000))))}), "when decoded"),
    ],
)  # fmt: skip
def test_bounds_hold_before_a_stream_is_decoded(table, match):
    with pytest.raises(BodyTooLarge, match=match):
        read(stream(table, "zstd"), max_rows=1000, max_decoded_bytes=7 * MIB)


def test_messages_are_bounded():
    data = stream(many(1001), chunk=1)
    with pytest.raises(BodyTooLarge, match="1000 Arrow messages"):
        read(data)


async def test_decoded_bytes_are_reserved_like_those_of_other_bodies(settings, inbox, registry):
    from calibrant_server.service.app import create_app
    from calibrant_server.service.engine import Connection

    data = stream(many(20_000), "zstd")
    assert len(data) < 100_000
    tight = settings.model_copy(update={"max_bytes_in_hand": 250_000})
    async with client_of(create_app(tight, Connection(inbox, registry))) as client:
        problem(await client.post(URL, content=data, headers=HEADERS), 503, "saturated")
        small = stream(many(1000), "zstd")
        assert (await client.post(URL, content=small, headers=HEADERS)).status_code == 202


@pytest.mark.parametrize("seed", range(3))
def test_changed_bytes_never_end_in_another_error(seed):
    """Every stream is read, or rejected as the client's error; it ends neither the process nor in a 500."""
    random_ = random.Random(seed)
    originals = [stream(complete(scores()), kind, 20) for kind in (None, "zstd", "lz4")]
    n_rejected = 0
    for _ in range(250):
        data = bytearray(random_.choice(originals))
        for _ in range(random_.choice((1, 1, 2, 5))):
            at = random_.randrange(len(data)) & ~3
            value = random_.choice((0, 1, 2, -1, 2**31 - 1, -(2**31), random_.randrange(-999, 999)))
            width = random_.choice((1, 4, 8))
            data[at : at + width] = value.to_bytes(8, "little", signed=True)[:width]
        try:
            read(bytes(data), max_decoded_bytes=8 * MIB)
        except (Problem, CalibrationInputError):
            n_rejected += 1
    assert n_rejected > 100


def test_a_form_of_the_past_is_rejected():
    with pytest.raises(MalformedBody):
        read(orjson.dumps({"probabilities": [[1, 0]]}))
    for data in (b"", b"ARROW1\0\0" + PLAIN, PLAIN.replace(b"UTC\0", b"\xffTC\0")):
        with pytest.raises(MalformedBody):
            read(data)
