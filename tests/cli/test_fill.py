"""`calibrant fill`: text tables, and event times without an offset or as numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import calibrant as cal
from tests.cli.command import Finished, predictions

Run = Callable[..., Finished]
_, P, LABELS = predictions(48)
TIMES = pd.date_range("2026-10-24T22:00", periods=48, freq="30min")
FRAME = pd.DataFrame(
    {f"p{i}": P[:, i] for i in range(3)} | {"label": LABELS, "site": ["north", "NA"] * 24}
)


def filled(run: Run, folder: Path, path: Path, *options: object) -> dict[tuple[str, str], cal.Pane]:
    panes = folder / "panes"
    found = run("fill", path, panes, "--scores", "p*", "--time", "ts", "--every", "1h", *options)
    assert found.code == 0, found.error
    with (panes / "index.csv").open(encoding="utf-8") as index:
        rows = list(csv.DictReader(index))
    return {
        (row["start"], row["slice"]): cal.Pane.from_bytes((panes / row["file"]).read_bytes())
        for row in rows
    }


@pytest.mark.parametrize(
    ("times", "options"),
    [
        ([f"{at.isoformat()}+02:00" for at in TIMES], ()),
        ([f"{at.isoformat()}+0200" for at in TIMES], ()),
        ([at.isoformat(sep=" ") for at in TIMES[:4]], ("--timezone", "Europe/Zurich")),
        ([int(at.timestamp()) - 7200 for at in TIMES], ("--time-unit", "s")),
        ([int(at.timestamp() - 7200) * 1000 for at in TIMES], ("--time-unit", "ms")),
    ],
)
def test_a_text_table_with_times(
    times: list[object], options: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    n = len(times)
    FRAME[:n].assign(ts=times).to_csv(tmp_path / "rows.csv", index=False)
    panes = filled(run, tmp_path, tmp_path / "rows.csv", "--slices", "site", *options)
    assert len(panes) == n // 2 * 3
    first = panes["2026-10-24T20:00:00+00:00", ""]
    assert first == cal.Pane.fill(P[:2], LABELS[:2])
    own = panes["2026-10-24T20:00:00+00:00", "site:north"]
    assert own == cal.Pane.fill(P[:1], LABELS[:1])


def test_a_repeated_hour_is_stated_and_a_missing_one_refused(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "rows.csv"
    FRAME[:2].assign(ts=["2026-10-25T02:30:00", "2026-10-25T03:30:00"]).to_csv(path, index=False)
    arguments = ("fill", path, tmp_path / "a", "--scores", "p*", "--time", "ts")
    found = run(*arguments, "--timezone", "Europe/Zurich")
    assert (
        found.code == 0 and "1 event times are of an hour that Europe/Zurich had twice" in found.out
    )
    FRAME[:1].assign(ts=["2026-03-29T02:30:00"]).to_csv(path, index=False)
    arguments = ("fill", path, tmp_path / "b", "--scores", "p*", "--time", "ts")
    assert "(no_such_time)" in run(*arguments, "--timezone", "Europe/Zurich").error


def test_nothing_is_guessed(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "rows.csv"
    arguments = ("fill", path, tmp_path / "panes", "--scores", "p*", "--time", "ts")
    FRAME[:1].assign(ts=["2026-10-25T02:30:00"]).to_csv(path, index=False)
    assert "without a time zone" in run(*arguments).error
    assert "expected a name such as Europe/Berlin" in run(*arguments, "--timezone", "Mars").error
    FRAME[:1].assign(ts=[1_792_900_000]).to_csv(path, index=False)
    assert "(rfc3339)" in run(*arguments).error
    assert "expected s or ms" in run(*arguments, "--time-unit", "us").error
    assert "(unknown_column)" in run(*arguments[:-1], "when").error


def test_numbers_of_columns_are_classes_here_too(tmp_path: Path, run: Run) -> None:
    frame = pd.DataFrame({"p1": [0.9, 0.2], "p2": [0.1, 0.8], "label": [1, 2]})
    frame.to_parquet(tmp_path / "rows.parquet")
    found = run("fill", tmp_path / "rows.parquet", tmp_path / "panes", "--scores", "p*")
    assert found.code == 0, found.error
    pane = cal.Pane.from_bytes((tmp_path / "panes" / "000000.pane").read_bytes())
    assert pane == cal.Pane.fill(np.array([[0.9, 0.1], [0.2, 0.8]]), [0, 1])


@pytest.mark.parametrize("classes", ["1,0,2", "10,20,30", "cat,dog,2"])
def test_names_of_classes_that_are_numbers_are_names(
    classes: str, tmp_path: Path, run: Run
) -> None:
    """Labels were read as names, and their places once more as names."""
    names = classes.split(",")
    frame = FRAME.assign(label=[names[each] for each in LABELS])
    frame.columns = ["a", "b", "c", *frame.columns[3:]]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    found = run(
        "fill", tmp_path / "rows.csv", tmp_path / "panes", "--scores", "a,b,c", "--classes", classes
    )  # fmt: skip
    assert found.code == 0, found.error
    pane = cal.Pane.from_bytes((tmp_path / "panes" / "000000.pane").read_bytes())
    assert pane == cal.Pane.fill(P, LABELS)
