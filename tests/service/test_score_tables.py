"""CSV, npy and Arrow bodies of `POST /v1/score`: the same scores as JSON, and bounds before work."""

import io

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import ipc

from calibrant_server.service.http import bodies
from calibrant_server.service.ingest import table_bodies
from calibrant_server.service.reads import representations
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/score"
N, K = 60, 3
RNG = np.random.default_rng(0)
SCORES = RNG.dirichlet(np.ones(K), N)
LABELS = RNG.integers(0, K, N)
UNITS = [f"patient {i // 3}".replace(" ", "-") for i in range(N)]
JSON_BODY = {"probabilities": SCORES.tolist(), "labels": LABELS.tolist(), "units": UNITS}


def npy(*arrays, **options) -> bytes:
    file = io.BytesIO()
    for each in arrays:
        np.save(file, each, **options)
    return file.getvalue()


def frame(**more) -> pd.DataFrame:
    return pd.DataFrame(
        {f"p{i}": SCORES[:, i] for i in range(K)} | {"label": LABELS, "unit": UNITS} | more
    )


def arrow_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def csv_of(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, float_format="%.17g").encode()


async def post(client, data, media_type, **params):
    return await client.post(URL, content=data, headers={"Content-Type": media_type}, params=params)


async def of_json(client, body, **params):
    response = await client.post(URL, json=body, params=params)
    assert response.status_code == 200, response.text
    return response.json()


TABLE = pa.Table.from_pandas(frame(), preserve_index=False)
LISTS = pa.table(
    {
        "probabilities": pa.FixedSizeListArray.from_arrays(pa.array(SCORES.reshape(-1)), K),
        "labels": LABELS,
        "units": pa.array(UNITS).dictionary_encode(),
    }
)


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (csv_of(frame()), bodies.CSV),
        (b"\xef\xbb\xbf" + csv_of(frame()).replace(b"\n", b"\r\n"), bodies.CSV),
        (arrow_of(TABLE), bodies.ARROW),
        (arrow_of(LISTS), bodies.ARROW),
    ],
)
async def test_a_table_scores_as_json(client, data, media_type):
    response = await post(client, data, media_type)
    assert response.status_code == 200, response.text
    assert response.json() == await of_json(client, JSON_BODY)


async def test_arrays_score_as_json(client):
    plain = {"probabilities": SCORES.tolist(), "labels": LABELS.tolist()}
    expected = await of_json(client, plain)
    for arrays in (
        (SCORES, LABELS),
        (np.asfortranarray(SCORES), LABELS.astype(">i2")),
        (SCORES, LABELS.astype(float)),
    ):
        response = await post(client, npy(*arrays), bodies.NPY)
        assert response.status_code == 200, response.text
        assert response.json() == expected


async def test_arrays_are_named_in_the_query(client):
    weights, units = RNG.integers(1, 4, N) / 2, np.arange(N) // 2
    data = npy(np.log(SCORES), LABELS, weights, units)
    found = await post(client, data, bodies.NPY, columns="logits,labels,weights,units")
    assert found.status_code == 200, found.text
    assert found.json() == await of_json(
        client,
        {
            "logits": np.log(SCORES).tolist(),
            "labels": LABELS.tolist(),
            "weights": weights.tolist(),
            "units": [str(each) for each in units],
        },
    )


async def test_ratings_of_readers_may_be_missing(client):
    ratings = RNG.integers(0, 2, (N, 3)).astype(float)
    ratings[::4, 1] = np.nan
    ratings[5] = np.nan
    present = [[int(x) for x in row if x == x] or None for row in ratings]
    found = await post(client, npy(SCORES[:, 0], ratings), bodies.NPY)
    body = {"probabilities": SCORES[:, 0].tolist(), "labels": present}
    assert found.json() == await of_json(client, body)
    readers = {f"reader_{i}": ratings[:, i] for i in "012" for i in [int(i)]}
    table = pd.DataFrame({"confidence": SCORES[:, 0], **readers})
    names = [[f"reader_{i}" for i in range(3) if row[i] == row[i]] or None for row in ratings]
    expected = await of_json(client, body | {"raters": names})
    assert expected["baselines"]["metrics"]["ece"]["by_rater"].keys() == readers.keys()
    for data, kind in (
        (csv_of(table), bodies.CSV),
        (arrow_of(pa.Table.from_pandas(table, preserve_index=False)), bodies.ARROW),
        (arrow_of(pa.table({"confidences": SCORES[:, 0], "labels": present, "raters": names})), bodies.ARROW),
    ):  # fmt: skip
        found = await post(client, data, kind)
        assert found.status_code == 200, found.text
        assert found.json() == expected


async def test_columns_get_roles_and_classes_names(client):
    names = np.array(["cat", "dog", "owl"])
    table = pd.DataFrame({name: SCORES[:, i] for i, name in enumerate(names)})
    table = table.assign(diagnosis=names[LABELS], patient=UNITS, note="seen, again")
    roles = "cat:probability,dog:probability,owl:probability,diagnosis:label,patient:unit"
    found = await post(client, csv_of(table), bodies.CSV, columns=roles + ",note:ignore")
    assert found.status_code == 200, found.text
    assert found.json() == await of_json(client, JSON_BODY)
    rejected = problem(
        await post(client, csv_of(table), bodies.CSV, columns=roles), 422, "invalid-input"
    )
    assert [(each["pointer"], each["rule"]) for each in rejected["errors"]] == [("/note", "unknown_field")]  # fmt: skip


async def test_options_are_in_the_query(client):
    options = orjson.dumps({"case": "scan-1", "frequency_bins": 5}).decode()
    cases = [f"scan-{i % 4}" for i in range(N)]
    found = await post(
        client, csv_of(frame(case=cases)), bodies.CSV, options=options, include="cases"
    )
    assert found.status_code == 200, found.text
    body = JSON_BODY | {"cases": cases, "options": orjson.loads(options)}
    assert found.json() == await of_json(client, body, include="cases")
    for wrong, rule in (("{", "json"), ('{"colour": 1}', "unknown_field")):
        rejected = await post(client, csv_of(frame()), bodies.CSV, options=wrong)
        assert problem(rejected, 422, "invalid-input")["errors"][0]["rule"] == rule
    rejected = await client.post(URL, json=JSON_BODY, params={"options": options})
    assert problem(rejected, 422, "invalid-input")["errors"][0]["pointer"] == "/options"


async def test_records_take_raters_and_options(client):
    records = [
        {"id": f"i{i}", "probabilities": row, "label": label, "rater": "ann"}
        for i, (row, label) in enumerate(zip(SCORES.tolist(), LABELS.tolist(), strict=True))
    ]
    found = await of_json(client, {"predictions": records, "options": {"frequency_bins": 4}})
    assert found["baselines"]["metrics"]["ece"]["by_rater"]["ann"]["n"] == N
    rejected = await client.post(URL, json={"predictions": records, "options": {"points": 0}})
    assert problem(rejected, 422, "invalid-input")["errors"][0]["pointer"] == "/options/points"


def broken(column: str, value, row: int = 4) -> pd.DataFrame:
    table = frame().astype({column: object})
    table.loc[row, column] = value
    return table


@pytest.mark.parametrize(
    ("data", "media_type", "pointer", "rule"),
    [
        (csv_of(broken("p1", "x")), bodies.CSV, "/6/p1", "number"),
        (csv_of(broken("p1", "0_1")), bodies.CSV, "/6/p1", "number"),
        (csv_of(broken("label", "1_0")), bodies.CSV, "/6/label", "class"),
        (csv_of(broken("label", "\u0661")), bodies.CSV, "/6/label", "class"),
        (csv_of(broken("p1", "1.5")), bodies.CSV, "/6/probability", "range"),
        (csv_of(broken("label", "cat")), bodies.CSV, "/6/label", "class"),
        (csv_of(broken("label", "7")), bodies.CSV, "/6/label", "class_range"),
        (csv_of(broken("unit", "")), bodies.CSV, "/6/unit", "missing"),
        (csv_of(frame(age=1)), bodies.CSV, "/age", "unknown_field"),
        (csv_of(frame(confidence=1)), bodies.CSV, "/confidence", "one_of"),
        (csv_of(frame(rater_1=1)), bodies.CSV, "/rater_1", "one_of"),
        (b"p0,p0,label\n1,0,1\n", bodies.CSV, "/1/p0", "repeated_key"),
        (b"p;label\n0,3;0\n", bodies.CSV, "/1", "delimiter"),
        (b"p0\tlabel\n0.3\t0\n", bodies.CSV, "/1", "delimiter"),
        (b"p0,p1,label\n1,0,1\n1,0\n", bodies.CSV, "/3", "length"),
        (b"p0,p1,label\n", bodies.CSV, "", "empty"),
        (arrow_of(pa.table({"p0": ["a"], "p1": [1.0], "label": [0]})), bodies.ARROW, "/probabilities/0", "number"),
        (arrow_of(pa.table({"p0": [[1.0]], "label": [0]})), bodies.ARROW, "/p0", "arrow_type"),
        (npy(SCORES), bodies.NPY, "/labels", "arrays"),
        (npy(SCORES, LABELS) + b"more", bodies.NPY, "", "arrays"),
        (npy(SCORES, LABELS)[:-1], bodies.NPY, "/labels", "truncated"),
        (npy(SCORES, LABELS + 0.5), bodies.NPY, "/labels/0", "class_index"),
        (npy(SCORES[None], LABELS), bodies.NPY, "/probabilities", "shape"),
        (npy(np.array([{}], object), LABELS, allow_pickle=True), bodies.NPY, "/probabilities", "dtype"),
        (npy(np.zeros(3, [("a", "f8")]), LABELS), bodies.NPY, "/probabilities", "dtype"),
        (b"x" * 40, bodies.NPY, "/probabilities", "npy"),
        (b"\x93NUMPY\x01\x00\x28\x23" + b"(" * 9000, bodies.NPY, "/probabilities", "npy"),
        (b"\x93NUMPY\x01\x00\x28\x23" + b"'" * 9000, bodies.NPY, "/probabilities", "npy"),
        (b"\x93NUMPY\x01\x00\x28\x23" + b"-" * 9000, bodies.NPY, "/probabilities", "npy"),
    ],
)  # fmt: skip
async def test_an_error_names_column_row_and_rule(client, data, media_type, pointer, rule):
    found = problem(await post(client, data, media_type), 422, "invalid-input")
    assert (found["errors"][0]["pointer"], found["errors"][0]["rule"]) == (pointer, rule)


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\xff\xfe", bodies.CSV),
        (b'p0,p1,label\n"1,0,1\n', bodies.CSV),
    ],
)  # fmt: skip
async def test_another_format_is_malformed(client, data, media_type):
    problem(await post(client, data, media_type), 400, "malformed-body")


async def test_rows_columns_and_bytes_are_bounded(client, settings, app, monkeypatch):
    few = settings.model_copy(update={"max_rows": N - 1})
    app.state.settings = few
    for data, media_type in (
        (csv_of(frame()), bodies.CSV),
        (npy(SCORES, LABELS), bodies.NPY),
        (arrow_of(TABLE), bodies.ARROW),
    ):
        found = problem(await post(client, data, media_type), 413, "body-too-large")
        assert f"at most {N - 1}" in found["detail"]
    app.state.settings = settings
    monkeypatch.setattr(table_bodies, "MAX_COLUMNS", 4)
    found = problem(await post(client, csv_of(frame()), bodies.CSV), 413, "body-too-large")
    assert "5 columns" in found["detail"]


async def test_texts_that_a_dictionary_repeats_are_counted(client):
    unit = pa.DictionaryArray.from_arrays(pa.array(2000 * [0], pa.int32()), ["u" * 20_000])
    data = arrow_of(pa.table({"p0": np.ones(2000), "p1": np.zeros(2000), "label": 2000 * [0], "unit": unit}))  # fmt: skip
    assert len(data) < 100_000
    found = problem(await post(client, data, bodies.ARROW), 413, "body-too-large")
    assert "bytes of texts" in found["detail"]


@pytest.mark.parametrize("media_type", ["application/vnd.apache.parquet", "application/x-npz"])
async def test_a_removed_type_names_its_replacement(client, media_type):
    found = problem(await post(client, b"PAR1", media_type), 415, "media-type-unsupported")
    assert "calibrant score" in found["detail"] and "application/" in found["detail"]


async def test_without_the_extra_the_error_names_it(client, monkeypatch):
    monkeypatch.setattr(bodies, "reads_arrow", lambda: False)
    found = problem(
        await post(client, arrow_of(TABLE), bodies.ARROW), 415, "media-type-unsupported"
    )
    assert "calibrant[server,ipc]" in found["detail"]
    assert (await post(client, csv_of(frame()), bodies.CSV)).status_code == 200


async def test_tables_that_cannot_be_written_name_the_extra(client, monkeypatch):
    monkeypatch.setattr(representations, "reads_arrow", lambda: False)
    await client.put("/v1/models/digits", json={"task": "binary"})
    for media_type in (bodies.ARROW,):
        response = await client.get("/v1/models/digits/metrics", headers={"Accept": media_type})
        found = problem(response, 406, "not-acceptable")
        assert "calibrant[server,ipc]" in found["detail"]


FROM_1 = ".8,.1,.1,1\n.1,.8,.1,2\n.7,.2,.1,1\n.2,.7,.1,2\n"


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("p1,p2,p3,label", None),
        ("prob_1,prob_2,prob_3,label", None),
        ("s_1,s_2,s_3,y", "s_1:probability,s_2:probability,s_3:probability,y:label"),
    ],
)
async def test_numbers_of_columns_are_classes(client, header, columns):
    """Counted from 0, the labels 1 and 2 would be the second and third class: accuracy 0 and ECE .75."""
    data = f"{header}\n{FROM_1}".encode()
    params = {"metrics": "accuracy,ece"} | ({} if columns is None else {"columns": columns})
    found = (await post(client, data, "text/csv", **params)).json()["metrics"]
    assert found["accuracy"]["value"] == 1.0
    assert found["ece"]["value"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("table", "pointer", "rule"),
    [
        ("p1,p2,label\n.9,.1,0\n", "/2/label", "class"),
        ("p0,label\n.9,0\n", "/p0", "class_number"),
        ("p1,prob_1,label\n.9,.1,0\n", "/prob_1", "one_of"),
        ("p1,p2,label_count0,label_count1\n.9,.1,1,0\n", "/label_count0", "class_number"),
        ("p0,p1,label\n.9,.1,nan\n", "/2/label", "class"),
    ],
)
async def test_numbers_that_name_no_class_are_refused(client, table, pointer, rule):
    error = problem(await post(client, table.encode(), "text/csv"), 422, "invalid-input")["errors"][
        0
    ]
    assert (error["pointer"], error["rule"]) == (pointer, rule)


async def test_only_blank_cells_and_null_are_missing(client):
    """Of Arrow, every text is a value."""
    columns = "NA:probability,None:probability"
    data = b"NA,None,label,unit\n.9,.1,NA,NA\n.2,.8,None,None\n.5,.5,,nan\n.5,.5,null,nan\n"
    params = {"columns": columns, "metrics": "accuracy"}
    found = (await post(client, data, "text/csv", **params)).json()
    assert found["n_predictions"] == 4 and found["n_ratings"] == 2
    assert found["metrics"]["accuracy"]["value"] == 1.0
    table = pa.table({"null": [0.9, 0.2], "b": [0.1, 0.8], "label": ["null", "b"]})
    params["columns"] = "null:probability,b:probability"
    found = (await post(client, arrow_of(table), bodies.ARROW, **params)).json()
    assert found["metrics"]["accuracy"]["value"] == 1.0 and found["n_ratings"] == 2
