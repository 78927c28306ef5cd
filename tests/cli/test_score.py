"""`calibrant score`: the library's numbers of every format, roles of columns, output files."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import calibrant as cal
from tests.cli.command import Finished, predictions

LOGITS, P, Y = predictions()
Run = Callable[..., Finished]


def write_csv(path: Path, header: str | None, *columns: object) -> None:
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")


def write(folder: Path, kind: str) -> list[Path]:
    """Write predictions and labels in a format; one file where it holds both."""
    path, labels = folder / f"scores{kind}", folder / "labels.csv"
    write_csv(labels, "label", Y)
    columns = {"p0": P[:, 0], "p1": P[:, 1], "p2": P[:, 2], "label": Y}
    match kind:
        case ".npy":
            np.save(path, P)
            return [path, labels]
        case ".npz":
            np.savez(path, probabilities=P, labels=Y)
        case ".csv":
            write_csv(path, "p0,p1,p2,label", *(column.tolist() for column in columns.values()))
        case ".tsv":
            rows = ["\t".join(map(repr, row)) for row in P.tolist()]
            path.write_text("\n".join(rows))
            return [path, labels]
        case ".parquet":
            pyarrow.parquet.write_table(pa.table({"probabilities": P.tolist(), "y": Y}), path)
        case ".arrow":
            table = pa.table(columns)
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        case ".json":
            rows = [
                {"id": f"r{i}", "probabilities": p, "label": int(y)}
                for i, (p, y) in enumerate(zip(P.tolist(), Y, strict=True))
            ]
            path.write_text(json.dumps({"predictions": rows}))
    return [path]


@pytest.mark.parametrize("kind", [".npy", ".npz", ".csv", ".tsv", ".parquet", ".arrow", ".json"])
def test_every_format_gives_the_numbers_of_the_library(kind: str, tmp_path: Path, run: Run) -> None:
    output = tmp_path / "numbers.json"
    found = run("score", *write(tmp_path, kind), "--metrics", "ece,brier", "-o", output)
    assert found.code == 0, found.error
    numbers = json.loads(output.read_text())
    expected = cal.evaluate(P, Y, "ece,brier")
    for name in ("ece", "brier"):
        assert numbers["metrics"][name]["value"] == pytest.approx(expected[name].value, abs=1e-12)
        assert numbers["metrics"][name]["interval"] == pytest.approx(
            list(expected[name].interval or ()), abs=1e-9
        )
    assert numbers["temperature"]["temperature"] == pytest.approx(
        float(cal.fit_temperature(P, Y)), abs=1e-6
    )


def test_bins_have_own_edges(tmp_path: Path, run: Run) -> None:
    output, paths = tmp_path / "numbers.json", write(tmp_path, ".npy")
    run("score", *paths, "--bin-edges", "0,0.4,.7,1", "--edges", "left", "-o", output)
    found = json.loads(output.read_text())
    expected = cal.ece(P, Y, bins=[0, 0.4, 0.7, 1], edges="left")
    assert found["metrics"]["ece"]["value"] == pytest.approx(expected.value, abs=1e-12)
    assert found["metrics"]["ece"]["bin_edges"] == [0, 0.4, 0.7, 1]
    for options, said in (
        (("--bin-edges", "0.5,1"), "add 0 and 1"),
        (("--bin-edges", "0,1", "--bins", "5"), "expected one of them"),
        (("--edges", "up"), "expected right or left"),
    ):
        refused = run("score", *paths, *options)
        assert refused.code != 0 and said in " ".join(refused.error.split())


def test_logits_are_known_by_name_or_flag_only(tmp_path: Path, run: Run) -> None:
    labels = tmp_path / "labels.csv"
    write_csv(labels, None, Y)
    for name in ("logits.npy", "other.npy"):
        np.save(tmp_path / name, LOGITS)
    named = run("score", tmp_path / "logits.npy", labels, "--metrics", "ece")
    assert named.code == 0 and "read as logits (the file name 'logits.npy')" in named.out
    flagged = run("score", tmp_path / "other.npy", labels, "--metrics", "ece", "--logits")
    assert flagged.code == 0 and "read as logits (--logits)" in flagged.out
    unnamed = run("score", tmp_path / "other.npy", labels)
    assert unnamed.code == 1
    assert "other.npy, row 0" in unnamed.error and "pass --logits" in unnamed.error
    sums = tmp_path / "sums.npy"
    np.save(sums, np.full((len(Y), 3), 0.5))
    assert "(row_sum)" in run("score", sums, labels).error
    rejected = run("score", tmp_path / "logits.npy", labels, "--probabilities")
    assert rejected.code == 1 and "(range)" in rejected.error


def test_the_verdict_follows_the_tolerance(tmp_path: Path, run: Run) -> None:
    files = write(tmp_path, ".npy")
    for tolerance, words in (("0.02", "Outside tolerance"), ("0.9", "Within tolerance")):
        found = run("score", *files, "--metrics", "ece", "--tolerance", tolerance)
        assert words in found.out
    assert "No tolerance was set" in run("score", *files, "--metrics", "ece").out
    estimate = cal.ece(P, Y)
    inside = f"{estimate.value:.3f}"
    assert "Undecided" in run("score", *files, "--metrics", "ece", "--tolerance", inside).out


def test_readers_units_subgroups_and_ids(tmp_path: Path, run: Run) -> None:
    """Blank ratings are absent, rows are matched by id, and each subgroup is a line."""
    n = 240
    rng = np.random.default_rng(2)
    ids = [f"img-{i}" for i in range(n)]
    write_csv(tmp_path / "p.csv", "id,cat,dog,cow", ids, *P[:n].T.tolist())
    names = np.array(["cat", "dog", "cow"])
    readers = [names[Y[:n]].tolist(), names[rng.integers(0, 3, n)].tolist()]
    readers[1][5] = ""
    readers[0][7] = readers[1][7] = ""
    patients, sites = (
        [f"pat-{i // 3}" for i in range(n)],
        ["A" if i < 200 else "B" for i in range(n)],
    )
    order = rng.permutation(n)
    columns = [[column[i] for i in order] for column in (ids, *readers, patients, sites)]
    write_csv(tmp_path / "labels.csv", "id,reader_1,reader_2,patient,site", *columns)
    output = tmp_path / "numbers.json"
    found = run(
        *("score", tmp_path / "p.csv", tmp_path / "labels.csv", "--raters", "reader_*", "--id", "id"),
        *("--unit", "patient", "--slice", "site", "--metrics", "ece", "-o", output),
    )  # fmt: skip
    assert found.code == 0, found.error
    places = {name: i for i, name in enumerate(names)}
    labels = [
        [places[name] for name in pair if name] or None for pair in zip(*readers, strict=True)
    ]
    expected = cal.ece(P[:n], labels, units=patients, ids=ids)
    numbers = json.loads(output.read_text())
    assert numbers["metrics"]["ece"]["value"] == pytest.approx(expected.value, abs=1e-12)
    assert numbers["n_units"] == expected.n_units == 80
    assert (numbers["n_labelled"], numbers["n_ratings"]) == (n - 1, 2 * n - 3)
    assert numbers["left_out"][0]["n"] == 1
    assert set(numbers["subgroups"]) == {"A", "B"}
    assert numbers["subgroups"]["B"]["metrics"]["ece"]["value"] == pytest.approx(
        cal.ece(P[200:n], labels[200:]).value, abs=1e-12
    )
    assert "Classes: cat, dog, cow" in found.out


def test_a_comparison_is_paired_by_row(tmp_path: Path, run: Run) -> None:
    files = write(tmp_path, ".npy")
    np.save(tmp_path / "other_logits.npy", LOGITS / 2)
    output = tmp_path / "numbers.json"
    found = run(
        *("score", *files, "--metrics", "accuracy,ece", "--compare"),
        *(tmp_path / "other_logits.npy", "-o", output),
    )
    assert found.code == 0, found.error
    compared = json.loads(output.read_text())["comparison"]
    assert compared["name"] == "other_logits.npy"
    # The same classes win, row by row: nothing is left of the difference, nor of its interval.
    assert compared["metrics"]["accuracy"]["difference_interval"] == pytest.approx([0, 0], abs=1e-9)
    low, high = compared["metrics"]["ece"]["difference_interval"]
    assert low < compared["metrics"]["ece"]["difference"] < high and 0.1 < high - low < 0.3


def test_binary_probabilities_are_one_column(tmp_path: Path, run: Run) -> None:
    p, y = P[:, 0], (Y == 0).astype(int)
    write_csv(tmp_path / "one.csv", "probability,label", p.tolist(), y.tolist())
    output = tmp_path / "numbers.json"
    assert run("score", tmp_path / "one.csv", "--metrics", "ece", "-o", output).code == 0
    assert json.loads(output.read_text())["metrics"]["ece"]["value"] == pytest.approx(
        cal.ece(p, y).value, abs=1e-12
    )


def test_readers_of_an_array(tmp_path: Path, run: Run) -> None:
    write(tmp_path, ".npy")
    ratings = np.stack([Y, Y, np.roll(Y, 1)], axis=1).astype(float)
    ratings[3, 2] = np.nan
    np.save(tmp_path / "ratings.npy", ratings)
    arguments = ("score", tmp_path / "scores.npy", tmp_path / "ratings.npy", "--metrics", "ece")
    rejected = run(*arguments)
    assert rejected.code == 1 and "--raters all" in rejected.error
    output = tmp_path / "numbers.json"
    assert run(*arguments, "--raters", "all", "-o", output).code == 0
    assert json.loads(output.read_text())["n_ratings"] == 3 * len(Y) - 1


def test_other_libraries_values_are_beside_ours(tmp_path: Path, run: Run) -> None:
    files, output = write(tmp_path, ".npy"), tmp_path / "numbers.json"
    found = run(
        "score", *files, "--metrics", "ece", "--compat", "netcal,torchmetrics", "-o", output
    )
    assert found.code == 0, found.error
    numbers = json.loads(output.read_text())["compat"]
    assert list(numbers) == ["netcal", "torchmetrics"]
    assert numbers["netcal"] == json.loads(json.dumps(cal.compat(P, Y, "netcal")["netcal"]))
    assert "Other libraries" in found.out and "torchmetrics" in found.out
    every = run("score", *files, "--metrics", "ece", "--compat", "all", "-o", tmp_path / "r.html")
    assert every.code == 0 and "relplot" in every.out
    assert "Why they differ" in (tmp_path / "r.html").read_text()
    unknown = run("score", *files, "--compat", "sklearn2")
    assert unknown.code == 1 and "scikit-learn" in unknown.error


def test_a_comparison_leaves_the_results_of_the_first_as_they_are(tmp_path: Path, run: Run) -> None:
    """Rows were resampled by their number with a comparison, and by their content without one."""
    files = write(tmp_path, ".npy")
    np.save(tmp_path / "other_logits.npy", LOGITS / 2)
    found = []
    for more in ([], ["--compare", tmp_path / "other_logits.npy"]):
        output = tmp_path / "numbers.json"
        assert run("score", *files, "--metrics", "ece,mce,brier", "-o", output, *more).code == 0
        found.append(json.loads(output.read_text()))
    for key in ("metrics", "reliability", "temperature", "detectable"):
        assert found[0][key] == found[1][key], key


def test_classes_in_another_order_are_suspected_before_the_verdict(
    tmp_path: Path, run: Run
) -> None:
    files = write(tmp_path, ".npy")
    write_csv(files[1], "label", [["a", "b", "c"][y] for y in Y])
    rest = ("--metrics", "ece", "--classes")
    wrong, right = (run("score", *files, *rest, names).out for names in ("b,c,a", "a,b,c"))
    warning = "The labels look inversely related to the probabilities."
    assert wrong.index(warning) < wrong.index("The measured error is larger")
    assert warning not in right and "The measured error is larger" in right


def test_the_way_to_a_tolerance_is_named(tmp_path: Path, run: Run) -> None:
    files = write(tmp_path, ".npy")
    assert "--tolerance 0.05" in run("score", *files, "--metrics", "ece").out
    found = run("score", *files, "--metrics", "ece", "--tolerance", "0.05").out
    assert "--tolerance" not in found
    assert (
        "Smallest errors that these data reveal in 80 % of samples:\n  all probabilities shifted alike: a true rate"
        in found
    )


def test_each_reader_is_compared_with_the_others_and_with_the_model(
    tmp_path: Path, run: Run
) -> None:
    path, output = write(tmp_path, ".npy")[0], tmp_path / "numbers.json"
    rng = np.random.default_rng(4)
    readers = [
        np.where(rng.random(len(Y)) < share, Y, rng.integers(0, 3, len(Y)))
        for share in (0.9, 0.8, 0.1)
    ]
    texts = [list(map(str, each)) for each in readers]
    texts[2][:50] = [""] * 50
    write_csv(tmp_path / "readers.csv", "reader_1,reader_2,reader_3", *texts)
    arguments = (path, tmp_path / "readers.csv", "--raters", "all")
    assert run("score", *arguments, "-o", output).code == 0
    found = json.loads(output.read_text())["readers"]
    assert [each["name"] for each in found] == ["reader_1", "reader_2", "reader_3"]
    assert [each["n_ratings"] for each in found] == [len(Y), len(Y), len(Y) - 50]
    first, second, third = readers
    equal = (first == second).sum() + (first == third)[50:].sum()
    assert found[0]["agreement"] == pytest.approx(equal / (2 * len(Y) - 50))
    assert found[2]["agreement"] < min(each["agreement"] for each in found[:2])
    own = cal.evaluate(P[50:], third[50:], ["ece"])["ece"]
    assert found[2]["metrics"]["ece"]["value"] == pytest.approx(own.value)
    page = tmp_path / "report.html"
    assert run("score", *arguments, "-o", page).code == 0
    assert "ECE against this reader" in page.read_text()


def test_the_report_has_the_diagram_of_every_class(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(7)
    p = rng.dirichlet([1, 1, 1], 90)
    rows = (p[:, 0].tolist(), p[:, 1].tolist(), p[:, 2].tolist(), rng.choice(["cat", "dog", "sky"], 90).tolist())  # fmt: skip
    write_csv(tmp_path / "scores.csv", "cat,dog,sky,label", *rows)
    page = tmp_path / "report.html"
    assert run("score", tmp_path / "scores.csv", "-o", page).code == 0
    figures = [b64decode(each).decode() for each in re.findall(r"svg\+xml;base64,([\w+/=]+)", page.read_text())]  # fmt: skip
    (drawn,) = [each for each in figures if "Reliability of each class" in each]
    assert all(f">{name}<" in drawn for name in ("cat", "dog", "sky"))


def test_flagged_predictions_at_each_threshold(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(6)
    p = rng.beta(1, 4, 500)
    y = (rng.random(500) < 0.7 * p).astype(int)
    write_csv(tmp_path / "scores.csv", "p,label", p.tolist(), y.tolist())
    output, page = tmp_path / "numbers.json", tmp_path / "report.html"
    arguments = ("score", tmp_path / "scores.csv", "--threshold", "0.2", "--threshold", "0.999")
    assert run(*arguments, "-o", output).code == 0
    found = run(*arguments, "-o", page)
    metrics = json.loads(output.read_text())["metrics"]
    first, none = (metrics[f"net_benefit(threshold={each})"] for each in ("0.2", "0.999"))
    acted = p >= 0.2
    assert first["acted_on"] == pytest.approx(acted.mean())
    assert first["observed"] == pytest.approx(y[acted].mean())
    assert first["predicted"] == pytest.approx(p[acted].mean())
    assert none["observed"] is None
    sentence = f"Of 100 flagged, {100 * y[acted].mean():.0f} had the outcome; the model predicted {100 * p[acted].mean():.0f}"
    assert sentence in page.read_text() and sentence in " ".join(found.out.split())
    assert "no prediction was flagged" in page.read_text()


def test_what_is_left_out_is_counted_and_options_state_what_came(tmp_path: Path, run: Run) -> None:
    write_csv(tmp_path / "f.csv", "p,label", [0.9, 0.2, 0.4, 0.7], ["1", "0", "", "0"])
    found = run("score", tmp_path / "f.csv", "--bin-edges", "0,0.5,1")
    assert "Left out: 1 prediction without a label: no reader rated it." in found.out
    assert "takes the ECE of 15 bins of the same data from" in " ".join(found.out.split())
    for option, value, expected in (
        ("--threshold", "30", "input should be"),
        ("--bins", "0", "input should be"),
        ("--ci", "95%", "expected a number"),
    ):
        wrong = run("score", tmp_path / "f.csv", option, value)
        assert wrong.code == 2 and f"'{option}': Received '{value}'; {expected}" in wrong.error


def test_reasons_are_words(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(3)
    np.save(tmp_path / "p.npy", rng.choice([0.9, 0.95], 300))
    np.save(tmp_path / "y.npy", np.arange(300) > 1)
    found = run(
        "score", tmp_path / "p.npy", tmp_path / "y.npy", "--metrics", "brier,hosmer_lemeshow"
    )
    text = " ".join(found.out.split())
    assert "none: few distinct scores, and rows have no ids" in text
    assert "none: a test statistic has a p-value instead" in text
