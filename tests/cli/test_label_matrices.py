"""`--task multilabel` and `--label-shares`: the numbers of naive sums, in every format, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import calibrant as cal
from tests.cli.command import Finished

Run = Callable[..., Finished]
RNG = np.random.default_rng(4)
N, K = 60, 3
NAMES = ["car", "dog", "sky"]
P = RNG.uniform(0.05, 0.95, (N, K)).round(4)
Y = (RNG.uniform(size=(N, K)) < P).astype(float)
Y[4, 1] = np.nan
LABELS = [f"label_{name}" for name in NAMES]
Q = RNG.dirichlet(np.ones(K), N)
S = RNG.dirichlet(np.ones(K), N)
EVENTS = ("--task", "multilabel", "--metrics", "brier")


def plain(y: float) -> int | None:
    return None if np.isnan(y) else int(y)


def table() -> dict[str, list[Any]]:
    scores = dict(zip(NAMES, P.T.tolist(), strict=True))
    return scores | {
        name: [plain(y) for y in column] for name, column in zip(LABELS, Y.T, strict=True)
    }


def csv_of(columns: dict[str, list[Any]]) -> str:
    rows = zip(*columns.values(), strict=True)
    cells = [",".join("" if each is None else str(each) for each in row) for row in rows]
    return "\n".join([",".join(columns), *cells]) + "\n"


def files(form: str, folder: Path) -> list[Any]:
    """Return the arguments of a command that scores the same rows."""
    path, columns = folder / f"f.{form}", table()
    names: list[Any] = [path, "--label", "label_*"]
    if form == "npy":
        np.save(folder / "p.npy", P)
        np.save(folder / "y.npy", Y)
        return [folder / "p.npy", folder / "y.npy", "--classes", ",".join(NAMES)]
    if form == "csv":
        path.write_text(csv_of(columns))
    elif form == "parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        text = (
            "".join(json.dumps(row) + "\n" for row in rows) if form == "jsonl" else json.dumps(rows)
        )
        path.write_text(text)
    return names


def numbers(run: Run, folder: Path, *arguments: Any) -> dict[str, Any]:
    out = folder / "out.json"
    found = run("score", *arguments, "-o", out)
    assert found.code == 0, found.error
    written: dict[str, Any] = json.loads(out.read_text())
    return written


@pytest.mark.parametrize("form", ["csv", "npy", "parquet", "json", "jsonl"])
def test_every_format_has_the_numbers_of_each_label(form: str, tmp_path: Path, run: Run) -> None:
    found = numbers(run, tmp_path, *files(form, tmp_path), *EVENTS)
    expected = [2 * np.nanmean((P[:, k] - Y[:, k]) ** 2) for k in range(K)]
    assert list(found["labels"]) == NAMES and found["n_ratings"] == N * K - 1
    for name, value in zip(NAMES, expected, strict=True):
        assert found["labels"][name]["metrics"]["brier"]["value"] == pytest.approx(value)
    assert found["metrics"]["brier"]["value"] == pytest.approx(np.mean(expected))
    own = cal.evaluate(P, Y, "brier", task="multilabel", classes=NAMES)
    assert isinstance(own, cal.MultilabelReport)
    for name in NAMES:
        temperature = found["labels"][name]["temperature"]["temperature"]
        assert temperature == pytest.approx(float(own.temperatures[name]))


def test_columns_of_equal_names_are_matched_and_rows_by_id(tmp_path: Path, run: Run) -> None:
    scores, labels = tmp_path / "p.csv", tmp_path / "y.csv"
    scores.write_text(csv_of({"id": list(range(N))} | dict(zip(NAMES, P.T.tolist(), strict=True))))
    back = slice(None, None, -1)
    other = {name: [plain(y) for y in Y[back, k]] for k, name in reversed(list(enumerate(NAMES)))}
    labels.write_text(csv_of({"id": list(range(N))[back]} | other))
    found = numbers(run, tmp_path, scores, labels, "--id", "id", *EVENTS)
    expected = {name: 2 * np.nanmean((P[:, k] - Y[:, k]) ** 2) for k, name in enumerate(NAMES)}
    brier = {name: each["metrics"]["brier"]["value"] for name, each in found["labels"].items()}
    assert brier == pytest.approx(expected)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--task", "multi"), "expected multilabel, or none"),
        ((*EVENTS, "--raters", "all"), "Remove --raters"),
        ((*EVENTS, "--normalize"), "Remove normalize"),
        ((*EVENTS, "--scope", "all"), "scope"),
        ((*EVENTS, "--label-shares", "label_*"), "Remove --label-shares"),
        ((*EVENTS, "-o", "x.html"), "expected .json"),
        ((*EVENTS, "--scores", "car,dog,sky", "--label", "label_[cd]*"), "expected (60, 3)"),
        ((*EVENTS, "--label", "nothing"), "the columns are"),
        (("--task", "multilabel", "--scores", "label_*", "--label", "car,dog,sky"), "expected"),
    ],
)  # fmt: skip
def test_what_rows_of_events_do_not_have(more: Any, message: str, tmp_path: Path, run: Run) -> None:
    path, *labels = files("csv", tmp_path)
    found = run("score", path, *(() if "--label" in more else labels), *more)
    assert found.code and message in found.error, found.error


@pytest.mark.parametrize("starts", [("p", "label_"), ("p_", "y"), ("score ", "label.")])
def test_numbered_columns_are_matched_by_number(
    starts: tuple[str, str], tmp_path: Path, run: Run
) -> None:
    """Also in another order, of events and of shares; read as they stand, they would be those of other scores."""
    scores, labels = ([f"{start}{k}" for k in range(K)] for start in starts)
    columns: dict[str, list[Any]] = dict(zip(scores, P.T.tolist(), strict=True))
    columns |= {labels[k]: [plain(y) for y in Y[:, k]] for k in (2, 0, 1)}
    path, out = tmp_path / "f.csv", tmp_path / "o.json"
    path.write_text(csv_of(columns))
    chosen = ("--scores", ",".join(scores))
    found = run("score", path, *EVENTS, *chosen, "--label", f"{starts[1]}*", "-o", out)
    assert found.code == 0, found.error
    result = json.loads(out.read_text())
    assert result["metrics"]["brier"]["value"] == pytest.approx(
        np.mean([2 * np.nanmean((P[:, k] - Y[:, k]) ** 2) for k in range(K)]), abs=1e-12
    )
    assert list(result["labels"]) == ["0", "1", "2"]
    shares = dict(zip(scores, Q.T.tolist(), strict=True))
    path.write_text(csv_of(shares | {labels[k]: S[:, k].tolist() for k in (2, 0, 1)}))
    metrics = ("--metrics", "accuracy", "--label-shares", f"{starts[1]}*")
    found = run("score", path, *chosen, *metrics, "-o", out)
    assert found.code == 0, found.error
    expected = S[np.arange(N), Q.argmax(axis=1)].mean()
    value = json.loads(out.read_text())["metrics"]["accuracy"]["value"]
    assert value == pytest.approx(expected, abs=1e-9)


def test_columns_of_other_numbers_are_refused(tmp_path: Path, run: Run) -> None:
    columns = {"p1": [0.2], "p2": [0.8], "label_0": [0], "label_1": [1]}
    (tmp_path / "f.csv").write_text(csv_of(columns))
    found = run("score", tmp_path / "f.csv", *EVENTS, "--label", "label_*")
    assert "numbered '0', '1'" in found.error and "(class_number)" in found.error


def test_labels_in_one_file_are_named(tmp_path: Path, run: Run) -> None:
    path = files("csv", tmp_path)[0]
    found = run("score", path, "--scores", ",".join(NAMES), *EVENTS)
    assert found.code and "--label 'label_*'" in found.error


def shares(folder: Path) -> list[Any]:
    path, names = folder / "s.csv", ["cat", "cow", "elk"]
    scores = dict(zip(names, Q.T.tolist(), strict=True))
    given = {f"share_{name}": column for name, column in zip(names, S.T.tolist(), strict=True)}
    path.write_text(csv_of(scores | given | {"n": [4] * N}))
    return [path, "--scores", "c*,e*", "--label-shares", "share_*"]


def test_shares_are_means_over_classes(tmp_path: Path, run: Run) -> None:
    arguments = (*shares(tmp_path), "--metrics", "brier,nll,ece")
    found = numbers(run, tmp_path, *arguments)
    losses = ((Q[:, None, :] - np.eye(K)[None]) ** 2).sum(axis=2)
    assert found["metrics"]["brier"]["value"] == pytest.approx((S * losses).sum(axis=1).mean())
    assert found["metrics"]["nll"]["value"] == pytest.approx(-(S * np.log(Q)).sum(axis=1).mean())
    assert (found["n_labelled"], found["n_ratings"], found["detectable"]) == (N, N, {})
    assert found["metrics"]["ece"]["null_q95"] is None
    page = run("score", *arguments, "-o", tmp_path / "page.html")
    assert page.code == 0 and "share_*" in (tmp_path / "page.html").read_text()


def test_shares_of_ratings_are_ratings(tmp_path: Path, run: Run) -> None:
    counts = RNG.multinomial(4, np.ones(K) / K, N)
    np.save(tmp_path / "q.npy", Q)
    np.savez(tmp_path / "s.npz", share=counts / 4, n=np.full(N, 4))
    given = ("--label-shares", "share", "--n-ratings", "n", "--metrics", "ece")
    found = numbers(run, tmp_path, tmp_path / "q.npy", tmp_path / "s.npz", *given)
    own = cal.evaluate(Q, label_counts=counts, metrics="ece")
    assert found["n_ratings"] == 4 * N
    assert found["metrics"]["ece"]["value"] == pytest.approx(own["ece"].value)
    assert found["metrics"]["ece"]["null_q95"] == pytest.approx(own["ece"].null_q95)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--policy", "majority"), "expected pooled or mean"),
        (("--n-ratings", "n"), "no multiples of 1 / n_ratings"),
        (("--compat", "all"), "Received label_shares without n_ratings"),
        (("--label", "cat"), "Received both labels and label_shares"),
    ],
)
def test_what_shares_do_not_allow(more: Any, message: str, tmp_path: Path, run: Run) -> None:
    found = run("score", *shares(tmp_path), "--metrics", "ece", *more)
    assert found.code and message in found.error, found.error


def test_a_number_of_ratings_needs_shares(tmp_path: Path, run: Run) -> None:
    found = run("score", *files("csv", tmp_path), "--n-ratings", "car")
    assert found.code and "n_ratings without label_shares" in found.error, found.error


def test_a_table_of_many_labels_is_not_wider_than_the_terminal(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(4)
    np.save(tmp_path / "p.npy", rng.random((60, 7)))
    np.save(tmp_path / "y.npy", rng.integers(0, 2, (60, 7)))
    found = run("score", tmp_path / "p.npy", tmp_path / "y.npy", "--task", "multilabel")
    lines = found.out.splitlines()
    assert max(map(len, lines)) <= 120 and sum("Temperature" in line for line in lines) > 1


def test_all_columns_of_a_file_are_shares(tmp_path: Path, run: Run) -> None:
    np.save(tmp_path / "p.npy", np.array([[0.7, 0.3], [0.2, 0.8]]))
    np.save(tmp_path / "y.npy", np.array([[0.5, 0.5], [0.0, 1.0]]))
    out = tmp_path / "out.json"
    more = ("--label-shares", "all", "--metrics", "accuracy", "-o", out)
    assert run("score", tmp_path / "p.npy", tmp_path / "y.npy", *more).code == 0
    assert json.loads(out.read_text())["metrics"]["accuracy"]["value"] == pytest.approx(0.75)
