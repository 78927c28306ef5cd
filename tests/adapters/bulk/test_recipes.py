"""Recipes of `docs/adapters.md` on real files with the real engines, compared with `fill_by` of the complete table."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="the engines are installed by `make test-adapters`")

import dask
import duckdb
import polars as pl
import pyarrow as pa
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import calibrant as cal
from tests.adapters.bulk.tables import COLUMNS, SPEC, table, with_lists, write

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
sys.path.insert(0, str(EXAMPLES))
import bulk_dask  # noqa: E402
import bulk_duckdb  # noqa: E402
import bulk_duckdb_sql  # noqa: E402
import bulk_polars  # noqa: E402
import bulk_spark  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.core.panes_by_key.SplitUnitsWarning")
SLICED = COLUMNS | {"slices": ["site"]}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table(6000)


@pytest.fixture(scope="module")
def paths(rows, tmp_path_factory) -> list[str]:
    return write(rows, tmp_path_factory.mktemp("predictions"))


@pytest.fixture(scope="module")
def expected(rows):
    return cal.fill_by(rows, SPEC, **SLICED)


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def expect_equal(found, expected) -> None:
    """Counts, digest and units to the bit, sums to 1e-12 of the largest of their column."""
    assert found.keys() == expected.keys()
    for key, pane in expected.items():
        assert found[key] == pane
        assert found[key].counts == pane.counts
        assert found[key].units_split == pane.units_split
        assert found[key].isclose(pane, rtol=1e-12)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("bulk_*.py")), ids=lambda path: path.stem)
def test_a_recipe_is_short(path: Path) -> None:
    assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 40


def test_polars_equals_fill_by(paths, expected):
    found = bulk_polars.reduce(pl.scan_parquet(paths), SPEC, pieces=3, **SLICED)
    expect_equal(found, expected)
    assert found.n_units_split == expected.n_units_split > 0


def test_polars_without_units(rows, paths):
    columns = {**SLICED, "unit": None}
    found = bulk_polars.reduce(pl.scan_parquet(paths), SPEC, **columns)
    expect_equal(found, cal.fill_by(rows, SPEC, **columns))


def test_polars_reads_delta(rows, expected, tmp_path):
    rows = with_lists(rows)
    write_deltalake(tmp_path, rows.slice(0, 2500))
    write_deltalake(tmp_path, rows.slice(2500), mode="append")
    found = bulk_polars.reduce(pl.scan_delta(str(tmp_path)), SPEC, pieces=3, **SLICED)
    expect_equal(found, expected)
    earlier = bulk_polars.reduce(pl.scan_delta(str(tmp_path), version=0), SPEC, **SLICED)
    expect_equal(earlier, cal.fill_by(rows.slice(0, 2500), SPEC, **SLICED))


def test_polars_reads_iceberg(rows, expected, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "POLARS_ICEBERG_PLANNER", "pyiceberg"
    )  # the other one is an optional package
    rows = with_lists(rows)
    location = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = SqlCatalog("tests", **location)
    catalog.create_namespace("log")
    iceberg = catalog.create_table("log.predictions", rows.schema)
    iceberg.append(rows.slice(0, 2500))
    iceberg.append(rows.slice(2500))
    found = bulk_polars.reduce(pl.scan_iceberg(iceberg), SPEC, pieces=3, **SLICED)
    expect_equal(found, expected)


@pytest.mark.parametrize("unit", ["patient", None])
def test_duckdb_equals_fill_by(rows, paths, unit):
    columns = {**SLICED, "unit": unit}
    query = f"select * from read_parquet({paths})"
    found = bulk_duckdb.reduce(duckdb.connect(), query, SPEC, pieces=3, **columns)
    expect_equal(found, cal.fill_by(rows, SPEC, **columns))


def test_duckdb_functions_in_sql(rows, paths):
    """As in the recipe's docstring: one pane per hour and piece, merged by hour, and a metric of each."""
    row = "struct(probabilities float[5], labels tinyint[], patient varchar)"
    expected = cal.fill_by(rows, SPEC, **COLUMNS)
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        bulk_duckdb_sql.register(database, SPEC, row, unit="patient")
        filled = f"""select date_trunc('hour', event_time) as hour, hash(patient) % 2 as piece,
            calibrant_pane(list({{probabilities: probabilities, labels: labels, patient: patient}})) as pane
            from read_parquet({paths}) group by all"""
        merged = f"select hour, calibrant_merge(list(pane)) as pane from ({filled}) group by hour"
        query = f"select hour, pane, calibrant_metric(pane, 'ece') as ece from ({merged})"
        found = database.sql(query).to_arrow_table().to_pylist()
    panes = {cal.Key(each["hour"], ""): cal.Pane.from_bytes(each["pane"]) for each in found}
    expect_equal(panes, expected)
    for each in found:
        value = expected[cal.Key(each["hour"], "")].evaluate("ece")["ece"].value
        assert each["ece"] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_equals_fill_by(paths, expected, scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=2):
        found = bulk_dask.reduce(paths, SPEC, pieces=5, **SLICED)
    expect_equal(found, expected)
    assert found.n_units_split == expected.n_units_split


def test_spark_equals_fill_by(spark, paths, expected):
    """More pieces than patients of a file: some are empty."""
    found = bulk_spark.reduce(spark.read.parquet(*paths), SPEC, pieces=4, **SLICED)
    pairs = list(bulk_spark.pairs(found))
    assert [key for key, _ in pairs] == sorted(expected)
    expect_equal({key: cal.Pane.from_bytes(pane) for key, pane in pairs}, expected)


def test_spark_leaves_out_empty_pieces(spark, rows, tmp_path):
    few = rows.slice(0, 3)
    found = bulk_spark.reduce(spark.read.parquet(*write(few, tmp_path)), SPEC, pieces=8, **COLUMNS)
    panes = {key: cal.Pane.from_bytes(pane) for key, pane in bulk_spark.pairs(found)}
    expect_equal(panes, cal.fill_by(few, SPEC, **COLUMNS))
