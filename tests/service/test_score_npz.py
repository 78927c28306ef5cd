"""`.npz` bodies of `POST /v1/score`: the same scores as JSON, names of arrays, and bounds before work."""

import io
import struct
import zipfile

import numpy as np
import pytest

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.http import bodies
from calibrant_server.service.http.errors import BodyTooLarge, MalformedBody
from calibrant_server.service.http.npz_files import MAX_ARRAYS, npz_sizes
from calibrant_server.service.ingest.npy_arrays import read_npz
from tests.service.conftest import problem
from tests.service.test_score_tables import JSON_BODY, LABELS, SCORES, N, npy, of_json, post

pytestmark = pytest.mark.anyio
ARRAYS = {"probabilities": SCORES, "labels": LABELS}
PLAIN = {name: JSON_BODY[name] for name in ARRAYS}


def npz(save=np.savez, **arrays) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def zipped(members, **options) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


DEFLATED = {"compression": zipfile.ZIP_DEFLATED}
BOTH = [("probabilities.npy", npy(SCORES)), ("labels.npy", npy(LABELS))]


def restated(data: bytes, n_bytes: int, place: int = 24) -> bytes:
    """State another size, or with place 16 another checksum, of the first member in the directory."""
    at = data.index(b"PK\x01\x02") + place
    return data[:at] + struct.pack("<L", n_bytes) + data[at + 4 :]


@pytest.mark.parametrize(
    "data",
    [
        npz(**ARRAYS),
        npz(np.savez_compressed, **ARRAYS),
        npz(labels=LABELS.astype(float), probabilities=np.asfortranarray(SCORES)),
        zipped(BOTH, **DEFLATED),
    ],
)
async def test_arrays_score_as_json(client, data):
    response = await post(client, data, bodies.NPZ)
    assert response.status_code == 200, response.text
    assert response.json() == await of_json(client, PLAIN)


async def test_columns_name_and_leave_out_arrays(client):
    units = np.arange(N) // 2
    data = npz(softmax=SCORES, y=LABELS, units=units, note=np.array(["a", "b"]), config=np.array({}, object))  # fmt: skip
    roles = "softmax:probabilities, y:labels,note:ignore,config:ignore"
    found = await post(client, data, bodies.NPZ, columns=roles)
    assert found.status_code == 200, found.text
    expected = await of_json(client, PLAIN | {"units": [str(each) for each in units]})
    assert found.json() == expected
    options = '{"frequency_bins": 5}'
    with_options = await post(client, npz(**ARRAYS), bodies.NPZ, options=options)
    assert with_options.json() == await of_json(client, PLAIN | {"options": {"frequency_bins": 5}})


@pytest.mark.parametrize(
    ("data", "columns", "pointer", "rule"),
    [
        (npz(SCORES=SCORES, labels=LABELS), None, "/SCORES", "unknown_field"),
        (npz(**ARRAYS, extra=LABELS), None, "/extra", "unknown_field"),
        (npz(**ARRAYS, extra=LABELS), "extra:labels", "/labels", "unknown_field"),
        (npz(**ARRAYS), "softmax:probabilities", "/columns", "unknown_field"),
        (npz(**ARRAYS), "probabilities,labels", "/columns", "unknown_field"),
        (npz(**ARRAYS), "labels:colour", "/labels", "unknown_field"),
        (npz(probabilities=np.array([{}], object), labels=LABELS), None, "/probabilities", "dtype"),
        (npz(probabilities=SCORES[None], labels=LABELS), None, "/probabilities", "shape"),
        (zipped([("probabilities.npy", zipped(BOTH)), BOTH[1]]), None, "/probabilities", "npy"),
        (zipped([("probabilities.npy", b"\x80\x04K\x01."), BOTH[1]]), None, "/probabilities", "npy"),
        (zipped([("probabilities.npy", npy(SCORES)[:-8]), BOTH[1]]), None, "/probabilities", "truncated"),
        (zipped([("probabilities.npy", npy(SCORES, LABELS)), BOTH[1]]), None, "/probabilities", "arrays"),
    ],
)  # fmt: skip
async def test_an_error_names_array_and_rule(client, data, columns, pointer, rule):
    params = {} if columns is None else {"columns": columns}
    found = problem(await post(client, data, bodies.NPZ, **params), 422, "invalid-input")
    assert (found["errors"][0]["pointer"], found["errors"][0]["rule"]) == (pointer, rule)


def encrypted(data: bytes) -> bytes:
    at = data.index(b"PK\x01\x02") + 8
    return data[:at] + b"\x01" + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not end"),
        (npy(SCORES, LABELS), "does not end"),
        (npz(**ARRAYS)[:-1], "does not end"),
        (b"PK\x05\x06" + bytes(16) + b"\xff\xff", "does not end"),
        (zipped([*BOTH, ("readme.txt", "x")]), "'readme.txt' is not an array"),
        (zipped([("a/probabilities.npy", npy(SCORES)), BOTH[1]]), "is not an array"),
        (zipped([*BOTH, ("lobels.npy", npy(LABELS))]).replace(b"lobels", b"labels"), "more than once"),
        (zipped(BOTH, compression=zipfile.ZIP_BZIP2), "neither stored nor deflated"),
        (zipped(BOTH, compression=zipfile.ZIP_LZMA), "neither stored nor deflated"),
        (encrypted(zipped(BOTH)), "encrypted"),
        (restated(zipped(BOTH, **DEFLATED), 100), "other than the 100 bytes"),
        (restated(zipped(BOTH, **DEFLATED), 100_000), "other than the 100000 bytes"),
        (restated(zipped(BOTH), 100), "other than the 100 bytes"),
        (restated(zipped(BOTH), 7, place=16), "another checksum"),
        (restated(zipped(BOTH), 2**31, place=20), "ends early"),
        (restated(zipped(BOTH), 5, place=42), "no header where"),
    ],
)  # fmt: skip
async def test_a_file_that_is_not_what_it_states_is_malformed(client, data, words):
    assert words in problem(await post(client, data, bodies.NPZ), 400, "malformed-body")["detail"]


async def test_bytes_arrays_and_rows_are_bounded(client, app, settings):
    zeros = npz(np.savez_compressed, probabilities=np.zeros(4_000_000), labels=np.zeros(4))
    assert len(zeros) < 40_000
    found = problem(await post(client, zeros, bodies.NPZ), 413, "body-too-large")
    assert "expected at most 4194304" in found["detail"]
    # A false statement does not help: decompression ends at what is stated.
    malformed = await post(client, restated(zeros, 4096), bodies.NPZ)
    problem(malformed, 400, "malformed-body")
    many = npz(**{f"a{number}": np.zeros(1) for number in range(MAX_ARRAYS + 1)})
    found = problem(await post(client, many, bodies.NPZ), 413, "body-too-large")
    assert "65 arrays; expected at most 64" in found["detail"]
    directory = zipped([(f"{number:0200d}.npy", b"") for number in range(400)])
    found = problem(await post(client, directory, bodies.NPZ), 413, "body-too-large")
    assert "directory of more than" in found["detail"]
    app.state.settings = settings.model_copy(update={"max_rows": N - 1})
    found = problem(await post(client, npz(**ARRAYS), bodies.NPZ), 413, "body-too-large")
    assert f"at most {N - 1}" in found["detail"]


def test_members_that_share_bytes_count_each():
    """A bomb whose entries all name the same deflated bytes states the size of each."""
    data = zipped([("a.npy", npy(np.zeros(100_000)))], **DEFLATED)
    start, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry = data[start:end]
    copies = b"".join(entry.replace(b"a.npy", b"%c.npy" % (97 + n)) for n in range(20))
    record = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 20, 20, len(copies), start, 0)
    bomb = data[:start] + copies + record
    assert npz_sizes(bomb, 10**6, 10**9).n_bytes > 20 * 800_000
    with pytest.raises(BodyTooLarge, match="when decompressed"):
        npz_sizes(bomb, 10**6, 4 << 20)


def test_forged_files_are_rejected_or_within_what_they_state():
    data = npz(np.savez_compressed, **ARRAYS)
    outcomes = set()
    for seed in range(600):
        rng = np.random.default_rng(seed)
        forged = bytearray(data)
        first = 0 if seed % 2 else data.index(b"PK\x01\x02")
        for place in rng.integers(first, len(data), 1 + seed % 6):
            forged[place] = rng.integers(256)
        try:
            assert npz_sizes(bytes(forged), 1000, 1_000_000).n_bytes <= 1_000_000
            read_npz(bytes(forged), None, 1000)
            outcomes.add("read")
        except (MalformedBody, BodyTooLarge, CalibrationInputError) as error:
            outcomes.add(type(error).__name__)
    assert outcomes >= {"read", "MalformedBody", "BodyTooLarge"}
