"""`calibrant score --manifest`: twelve made-up cases, three readers, one absent on some, one mismatched affine."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest

import calibrant as cal
from calibrant.cli.imaging import case_evaluation
from calibrant.cli.imaging.reduction import reduced
from calibrant.cli.imaging.region import automatic_region
from tests.cli.command import Finished

Run = Callable[..., Finished]
SHAPE, SPACING = (24, 20, 12), (1.0, 1.0, 2.5)
AFFINE = np.diag([*SPACING, 1.0])
BAD, ABSENT = "case-07", {"case-03", "case-05", "case-11"}


def image(path: Path, array: np.ndarray, affine: np.ndarray = AFFINE) -> str:
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return path.name


def voxels(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of a ball, sharper than what the three readers see, and their masks."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"), axis=-1)
    middle = np.array(SHAPE) / 2 + rng.normal(0, 1, 3)
    distance = np.linalg.norm((grid - middle) * SPACING, axis=-1)
    odds = 7.0 - distance
    p = 1 / (1 + np.exp(-2 * odds))
    p[distance > 14] = 0.0
    readers = rng.random((3, *SHAPE)) < 1 / (1 + np.exp(-odds))
    return p.astype(np.float32), readers & (distance < 12)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    lines = ["case,patient,scanner,probability,reader_1,reader_2,reader_3"]
    for i in range(1, 13):
        name = f"case-{i:02}"
        p, readers = voxels(i)
        files = [image(folder / f"{name}-p.nii.gz", p)]
        for r in range(3):
            if r == 2 and name in ABSENT:
                files.append("")
                continue
            shift = np.eye(4)
            shift[0, 3] = 0.8 if (name, r) == (BAD, 1) else 0.0
            files.append(
                image(folder / f"{name}-r{r}.nii.gz", readers[r].astype(np.uint8), AFFINE @ shift)
            )
        # Two scans of patient-1, one of each other.
        patient = f"patient-{max(i - 1, 1)}"
        lines.append(",".join([name, patient, "A" if i < 8 else "B", *files]))
    (folder / "cases.csv").write_text("\n".join(lines) + "\n")
    return folder / "cases.csv"


def expected(roi: bool) -> cal.Report:
    """The library's own numbers, of every voxel."""
    p, counts, patients, names = [], [], [], []
    for i in range(1, 13):
        name = f"case-{i:02}"
        if name == BAD:
            continue
        probability, readers = voxels(i)
        readers = readers[:2] if name in ABSENT else readers
        positives = readers.sum(axis=0)
        inside = np.ones(SHAPE, bool)
        if roi:
            inside = automatic_region(probability, positives.astype(np.uint8), SPACING)
        p.append(probability[inside].astype(float))
        counts.append(np.stack([len(readers) - positives, positives], axis=-1)[inside])
        patients += [f"patient-{max(i - 1, 1)}"] * int(inside.sum())
        names += [name] * int(inside.sum())
    pane = cal.Pane.fill(
        np.concatenate(p), label_counts=np.concatenate(counts), units=patients, cases=names
    )
    return pane.evaluate(list(case_evaluation.METRICS))


def test_twelve_cases_give_the_numbers_of_their_voxels(
    cases: Path, run: Run, tmp_path: Path
) -> None:
    output = tmp_path / "numbers.json"
    found = run(
        *("score", "--manifest", cases, "--roi", "auto", "--tolerance", "0.02", "-o", output),
        *("--metrics", ",".join(case_evaluation.METRICS), "--work", tmp_path / "work"),
    )
    assert found.code == 0, found.error
    assert "11 of 12 cases" in found.out and "peak memory" in found.out
    numbers, exact = json.loads(output.read_text()), expected(roi=True)
    for name in case_evaluation.METRICS:
        mine, theirs = numbers["metrics"][name], exact[name]
        if theirs.value is None:
            assert mine["reason"] == theirs.reason
            continue
        assert mine["value"] == pytest.approx(theirs.value, rel=1e-4), name
        if theirs.interval is not None:
            assert mine["interval"] == pytest.approx(list(theirs.interval), rel=0.02, abs=2e-4), (
                name
            )
    assert numbers["metrics"]["ece"]["value"] == pytest.approx(exact["ece"].value, abs=1e-9)
    pairs, differing = 0, 0.0
    for i in range(1, 13):
        name = f"case-{i:02}"
        if name != BAD:
            p, readers = voxels(i)
            readers = readers[:2] if name in ABSENT else readers
            positives = readers.sum(axis=0).astype(np.uint8)
            rated = readers[:, automatic_region(p, positives, SPACING)]
            several = [rated[a] != rated[b] for a in range(len(rated)) for b in range(a)]
            pairs, differing = pairs + rated.shape[1], differing + np.mean(several, axis=0).sum()
    assert numbers["rater_disagreement"] == pytest.approx(differing / pairs, rel=1e-12)
    assert numbers["n_units"] == exact.n_units == 10
    assert numbers["n_labelled"] == exact.n_labelled
    assert numbers["n_ratings"] == exact.n_ratings
    assert set(numbers["subgroups"]) == {"scanner A", "scanner B"}


def test_strict_tells_by_its_exit_code_that_a_case_was_left_out(
    cases: Path, run: Run, tmp_path: Path
) -> None:
    arguments = ("--roi", "auto", "--metrics", "brier", "--work", tmp_path / "work")
    output = tmp_path / "numbers.json"
    found = run("score", "--manifest", cases, *arguments, "--strict", "-o", output)
    assert found.code == 3 and "Left out" in found.out, found.error
    assert json.loads(output.read_text())["left_out"][0]["what"] == f"case ({BAD})"
    complete = cases.parent / "complete.csv"
    lines = cases.read_text().splitlines()
    complete.write_text("\n".join(each for each in lines if not each.startswith(BAD)) + "\n")
    found = run("score", "--manifest", complete, *arguments, "--strict")
    assert found.code == 0 and "11 of 11 cases" in found.out, found.error


def test_strict_is_about_cases_of_a_manifest(run: Run) -> None:
    found = run("score", "x.npy", "--strict")
    assert found.code == 2 and "--strict without --manifest" in found.error


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_an_option_in_place_of_the_salt_file_is_named(option: str, run: Run) -> None:
    found = run("score", "--manifest", "cases.csv", "--pseudonyms", option, "p.html")
    assert found.code == 2 and "--pseudonyms SALT_FILE" in found.error, found.error
    assert f"Received '{option}'" in found.error and "both FILE" not in found.error


def test_what_does_not_fit_is_left_out_by_name(cases: Path, run: Run, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    arguments = ("score", "--manifest", cases, "--roi", "auto", "--work", tmp_path / "work")
    found = run(*arguments, "-o", output)
    assert found.code == 0, found.error
    line = next(each for each in found.out.splitlines() if "Left out" in each)
    assert "(affine)" in line and "Nothing is resampled" in line
    text = output.read_text()
    assert f"case ({BAD})" in line and str(cases.parent) not in text
    assert "Two readers of the same prediction differ" in text and "intervals need 40" in text
    assert BAD in text and "Region of interest and complete volume" in text
    assert "Readers per case" in text and "<td>11 of 12</td>" in text
    line = "Readers: reader_1, reader_2, reader_3 (absent in 3 of 11 cases)"
    assert line in found.out and line.removeprefix("Readers: ") in text


def test_a_report_has_the_digest_of_each_image(cases: Path, run: Run, tmp_path: Path) -> None:
    """Also where the cases are those of an earlier run."""
    arguments = ("score", "--manifest", cases, "--roi", "auto", "--work", tmp_path / "work")
    for name in ("first", "second"):
        found = run(*arguments, "-o", tmp_path / f"{name}.json")
        assert found.code == 0, found.error
        digests = json.loads((tmp_path / f"{name}.json").read_text())["image_digests"]
        assert len(digests) == 11 and BAD not in digests
        assert set(digests["case-03"]) == {"probability", "reader_1", "reader_2"}
        path = cases.parent / "case-04-r2.nii.gz"
        assert digests["case-04"]["reader_3"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert run(*arguments, "-o", tmp_path / "report.html").code == 0
    text = (tmp_path / "report.html").read_text()
    assert text.count("<td><code>") == sum(map(len, digests.values())) == 41
    assert digests["case-12"]["probability"] in text


def test_an_interrupted_run_continues(
    cases: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run finished is not read again; a changed file is."""
    arguments = ("score", "--manifest", cases, "--roi", "auto", "--work", tmp_path / "work")
    done: list[str] = []
    reduce_case = case_evaluation.reduce_case

    def interrupted(case, settings):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(case.name)
        return reduce_case(case, settings)

    monkeypatch.setattr(case_evaluation, "reduce_case", interrupted)
    run_code = run_interrupted(run, *arguments)
    assert run_code != 0 and len(done) == 5
    done.clear()
    monkeypatch.setattr(
        case_evaluation, "reduce_case", lambda case, settings: (done.append(case.name), reduce_case(case, settings))[1]
    )  # fmt: skip
    found = run(*arguments)
    assert found.code == 0 and "(5 from an earlier run)" in found.out
    assert len(done) == 7
    done.clear()
    assert "(11 from an earlier run)" in run(*arguments).out and done == [BAD]


def run_interrupted(run: Run, *arguments: object) -> int:
    try:
        return run(*arguments).code
    except KeyboardInterrupt:
        return 130


def write_case(folder: Path, **arrays: np.ndarray) -> Path:
    """A manifest of one case of .npy files."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    names = {"case": "c", "patient": "p"} | {name: f"{name}.npy" for name in arrays}
    path = folder / "cases.csv"
    path.write_text(",".join(names) + "\n" + ",".join(names.values()) + "\n")
    return path


P = np.linspace(0, 1, 24).reshape(2, 3, 4).astype(np.float32)
MASK = (P > 0.5).astype(np.uint8)


@pytest.mark.parametrize(
    ("arrays", "rule"),
    [
        ({"probability": P, "reader_1": MASK}, "no_roi"),
        ({"probability": P, "reader_1": MASK[:1], "roi": MASK}, "shape"),
        ({"probability": P, "reader_1": MASK, "roi": MASK[..., :2]}, "shape"),
        ({"probability": P * 2, "reader_1": MASK, "roi": MASK}, "range"),
        ({"probability": P, "reader_1": MASK * 3, "roi": MASK}, "label_values"),
        ({"probability": P, "reader_1": MASK * 0.5, "roi": MASK}, "label_values"),
        ({"probability": P, "reader_1": MASK, "roi": MASK * 0}, "empty_roi"),
        ({"probability": np.stack([1 - P, P]), "reader_1": MASK, "roi": MASK}, "class"),
        ({"probability": MASK, "reader_1": MASK, "roi": MASK}, "range"),
    ],
)
def test_each_file_is_checked(
    arrays: dict[str, np.ndarray], rule: str, tmp_path: Path, run: Run
) -> None:
    found = run("score", "--manifest", write_case(tmp_path, **arrays))
    assert found.code == 1 and f"({rule})" in found.error and "Traceback" not in found.error


def test_automatic_regions_need_distances(tmp_path: Path, run: Run) -> None:
    path = write_case(tmp_path, probability=P, reader_1=MASK)
    assert "(no_spacing)" in run("score", "--manifest", path, "--roi", "auto").error


def test_one_class_of_several_against_the_rest(tmp_path: Path, run: Run) -> None:
    channels = np.stack([1 - P, P / 2, P / 2])
    readers = MASK * 2
    path = write_case(tmp_path, probability=channels, reader_1=readers, roi=np.ones_like(MASK))
    output = tmp_path / "numbers.json"
    found = run("score", "--manifest", path, "--class", 2, "-o", output, "--metrics", "ece")
    assert found.code == 0, found.error
    value = cal.ece((P / 2).reshape(-1).astype(float), MASK.reshape(-1).astype(int)).value
    assert json.loads(output.read_text())["metrics"]["ece"]["value"] == pytest.approx(value)


def test_other_metrics_and_manifests_are_rejected(tmp_path: Path, run: Run) -> None:
    path = write_case(tmp_path, probability=P, reader_1=MASK, roi=MASK)
    assert "(not_for_images)" in run("score", "--manifest", path, "--metrics", "skce").error
    path.write_text("case,patient,probability\na,b,c\n")
    assert "no column of a reader" in run("score", "--manifest", path).error
    path.write_text("case,patient,probability,rater1,reader_2\na,p,x,y,z\n")
    error = run("score", "--manifest", path).error
    assert "unknown column 'rater1'" in error and "Is it 'reader_1'?" in error
    path.write_text("case,patient,probability,reader_1,notes\na,p,x,y,z\n")
    error = run("score", "--manifest", path).error
    assert "remove the column. (unknown_column)" in error and "Is it" not in error
    path.write_text("case,patient,probability,reader_1\na b,p,x,y\n")
    assert "row 0 (line 2)" in run("score", "--manifest", path).error
    assert "both FILE and --manifest" in run("score", path, "--manifest", path).error


def test_weighted_rows_are_the_voxels_to_rounding() -> None:
    """Every sum by bin, whatever the pieces; the curved scores within 1e-5."""
    rng = np.random.default_rng(4)
    p = np.concatenate([rng.beta(0.2, 2, 30_000), np.arange(3601) / 3600, [0.0] * 99, [1.0] * 9])
    y = (rng.random((3, len(p))) < p).sum(axis=0).astype(np.uint8)
    rows = reduced(p, y, np.full(len(p), 3, np.uint8))
    assert rows.n_voxels == len(p) and len(rows.weight) < len(p) / 2
    assert rows.weight @ rows.probability == pytest.approx(p.sum(), rel=1e-12)
    for n_bins in (10, 15, 60):
        edges = np.arange(n_bins + 1) / n_bins
        for each, weight in ((p, np.ones(len(p))), (rows.probability, rows.weight)):
            counted = np.bincount(
                np.clip(np.searchsorted(edges, each, side="left") - 1, 0, None), weight, n_bins
            )
            if weight is not rows.weight:
                reference = counted
        np.testing.assert_allclose(counted, reference, atol=1e-9)
    inside = (p > 0) & (p < 1)
    share, of_rows = y[inside] / 3, rows.positives / 3
    nll = -(share * np.log(p[inside]) + (1 - share) * np.log1p(-p[inside])).sum()
    kept = (rows.probability > 0) & (rows.probability < 1)
    q, w, s = rows.probability[kept], rows.weight[kept], of_rows[kept]
    assert -(w * (s * np.log(q) + (1 - s) * np.log1p(-q))).sum() == pytest.approx(nll, rel=1e-5)


def test_intervals_and_nulls_of_weighted_rows_are_those_of_voxels() -> None:
    """For the metrics that images may have; others use the number of rows and differ."""
    rng = np.random.default_rng(6)
    n, n_cases = 60_000, 30
    p, case = rng.beta(0.3, 2, n), np.arange(n) % n_cases
    rate = 1 / (1 + np.exp(-0.7 * np.log(p / (1 - p)) - rng.normal(0, 0.5, n_cases)[case]))
    y = (rng.random((3, n)) < rate).sum(axis=0).astype(np.uint8)
    names = np.array([f"c{i}" for i in range(n_cases)], object)
    voxels_pane = cal.Pane.fill(
        p, label_counts=np.stack([3 - y, y], 1).astype(int), units=names[case], cases=names[case]
    )
    three = np.full(n // n_cases, 3, np.uint8)
    parts = [reduced(p[case == i], y[case == i], three) for i in range(n_cases)]
    positives = np.concatenate([each.positives for each in parts])
    of = np.repeat(names, [len(each.weight) for each in parts])
    rows_pane = cal.Pane.fill(
        np.concatenate([each.probability for each in parts]),
        label_counts=np.stack([3 - positives, positives], 1),
        weights=np.concatenate([each.weight for each in parts]),
        units=of,
        cases=of,
    )
    exact, found = (
        each.evaluate(list(case_evaluation.METRICS)) for each in (voxels_pane, rows_pane)
    )
    for name, theirs in exact.items():
        mine = found[name]
        assert mine.value == pytest.approx(theirs.value, rel=1e-5), name
        assert (mine.interval is None) == (theirs.interval is None), name
        if theirs.interval is not None:
            assert mine.interval == pytest.approx(theirs.interval, rel=1e-2, abs=1e-5), name
        if theirs.null is not None:
            assert mine.null_q95 == pytest.approx(theirs.null_q95, rel=5e-3, abs=1e-5), name
    one, other = voxels_pane.temperature(), rows_pane.temperature()
    assert other.value == pytest.approx(one.value, rel=1e-4)
    assert other.interval == pytest.approx(one.interval, rel=1e-3)


def test_a_region_is_that_of_every_distance() -> None:
    """A naive second version: the distance to every seed, for slabs and borders."""
    rng = np.random.default_rng(5)
    p = np.where(rng.random((9, 8, 40)) < 0.004, 0.5, 0.0)
    y = np.zeros(p.shape, np.uint8)
    y[4, 4, 15:17] = 1
    spacing = (2.0, 2.0, 1.2)
    points = np.stack(np.meshgrid(*map(np.arange, p.shape), indexing="ij"), -1) * np.array(spacing)
    seeds = points[(p > 0.01) | (y > 0)]
    nearest = np.min(np.linalg.norm(points[..., None, :] - seeds, axis=-1), axis=-1)
    np.testing.assert_array_equal(automatic_region(p, y, spacing), nearest <= 5.0)


def manifest_of(folder: Path, *lines: str) -> Path:
    path = folder / "cases.csv"
    path.write_text("case,patient,probability,reader_1,reader_2,roi\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["a,p,a.npy,r.npy,./r.npy,"],
            "column 'reader_2', row 0 (line 2): Received the same file as in column 'reader_1' of case 'a' (line 2)",
        ),
        (
            ["a,p,m.npy,r.npy,s.npy,", "b,q,m.npy,t.npy,u.npy,"],
            "column 'probability', row 1 (line 3): Received the same file as in column 'probability' of case 'a' (line 2)",
        ),
        (
            ["a,p,m.npy,r.npy,s.npy,", "b,p,n.npy,t.npy,r.npy,"],
            "column 'reader_2', row 1 (line 3): Received the same file as in column 'reader_1' of case 'a'",
        ),
        (["a,p,m.npy,m.npy,s.npy,"], "column 'reader_1', row 0 (line 2)"),
        (["a,p,m.npy,r.npy,s.npy,x.npy", "b,p,m.npy,r.npy,s.npy,x.npy"], "column 'probability', row 1"),
    ],
)  # fmt: skip
def test_a_file_in_two_cells_is_rejected(
    lines: list[str], expected: str, tmp_path: Path, run: Run
) -> None:
    """A reader, or a scan, would count twice."""
    found = run("score", "--manifest", manifest_of(tmp_path, *lines), "--roi", "auto")
    assert found.code == 1 and expected in found.error and "(repeated_file)" in found.error


def test_cases_of_one_scan_share_files_if_each_has_its_region(tmp_path: Path, run: Run) -> None:
    for name, array in (("p", P), ("r", MASK), ("s", 1 - MASK)):
        np.save(tmp_path / f"{name}.npy", array)
    path = manifest_of(tmp_path, "a,p,p.npy,r.npy,,r.npy", "b,p,p.npy,r.npy,,s.npy")
    found = run("score", "--manifest", path, "--metrics", "ece")
    assert found.code == 0 and "2 of 2 cases" in found.out and "Warning" not in found.out
    assert "Region of interest: column roi\n" in found.out


def test_a_copy_of_the_scores_of_another_patient_is_a_warning(tmp_path: Path, run: Run) -> None:
    for name, array in (("p", P), ("copy", P), ("r", MASK), ("s", 1 - MASK)):
        np.save(tmp_path / f"{name}.npy", array)
    path = manifest_of(tmp_path, "a,p,p.npy,r.npy,,r.npy", "b,q,copy.npy,s.npy,,r.npy")
    found = run("score", "--manifest", path, "--metrics", "ece", "-o", tmp_path / "report.html")
    assert found.code == 0
    warning = "a, b: the files in the column probability have the same content."
    assert f"Warning: {warning}" in found.out
    assert warning in (tmp_path / "report.html").read_text()


def test_the_region_is_named_with_the_number_of_its_cases(
    cases: Path, run: Run, tmp_path: Path
) -> None:
    """A column roi that does not exist was named before."""
    arguments = ("--roi", "auto", "--work", tmp_path / "work", "--metrics", "ece")
    found = run("score", "--manifest", cases, *arguments)
    assert "Region of interest: automatic for 11 of 11 cases: voxels within 5 mm" in found.out
    assert "depends on the scores." in found.out and "column roi" not in found.out
    header, *lines = cases.read_text().splitlines()
    drawn = [f"{header},roi", f"{lines[0]},case-01-r0.nii.gz", f"{lines[1]},"]
    path = cases.with_name("drawn.csv")
    path.write_text("\n".join(drawn) + "\n")
    found = run("score", "--manifest", path, *arguments)
    expected = "Region of interest: column roi for 1 of 2 cases, automatic for 1 of 2 cases: "
    assert found.code == 0 and expected in found.out, found.error


def test_a_mask_of_0_and_255_is_advised(tmp_path: Path, run: Run) -> None:
    path = write_case(tmp_path, probability=P, reader_1=MASK * 255, roi=MASK)
    error = run("score", "--manifest", path).error
    assert "Received the label values 255; expected 0 and 1. If 255 marks the lesion" in error
    assert "pass --class 255 if every mask" in error and "For one of several" not in error
    output = tmp_path / "numbers.json"
    found = run("score", "--manifest", path, "--class", 255, "--metrics", "accuracy", "-o", output)
    assert found.code == 0
    assert json.loads(output.read_text())["metrics"]["accuracy"]["value"] == 1.0
    np.save(tmp_path / "reader_1.npy", MASK * 2 + (P > 0.8))
    assert "For one of several classes: --class." in run("score", "--manifest", path).error


def test_semicolons_are_named(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("case;patient;probability;reader_1\na;p;x.npy;y.npy\n")
    error = run("score", "--manifest", path).error
    assert "Received semicolons between the columns of the first line; expected commas." in error
    assert "(delimiter)" in error


def test_a_tolerance_judges_each_error_but_the_headline_only_the_first(
    cases: Path, run: Run, tmp_path: Path
) -> None:
    """Few units: the calibration error has no interval, the mean over cases has one."""
    header, *lines = cases.read_text().splitlines()
    path = cases.with_name("without.csv")
    path.write_text("\n".join([header, *lines[1:]]) + "\n")
    output = tmp_path / "report.html"
    found = run(
        *("score", "--manifest", path, "--roi", "auto", "--tolerance", "0.05", "-o", output),
        *("--work", tmp_path / "work"),
    )
    assert found.code == 0, found.error
    assert "\nUndecided\n" in found.out
    assert re.search(r"Marginal L1.* within tolerance", found.out)
    assert "would show is not known: too few independent units." in found.out
    assert "Smallest detectable error: not known (too few independent units)." in found.out
    text = output.read_text()
    assert "Tolerance, set beforehand</th>" in text
    assert (
        '<td class="number">5,760</td>' in text
        and '<th scope="col" class="number">Voxels</th>' in text
    )
    left_out = re.search(r"<h3>Left out</h3>.*?<p>(.*?)</p>", text, re.DOTALL)
    assert left_out is not None
    assert left_out[1].startswith("Voxels outside the region (")
    assert left_out[1].endswith("reader_3 is absent in 3 cases.")


def test_cases_are_listed_worst_first(cases: Path, run: Run, tmp_path: Path) -> None:
    output, page = tmp_path / "numbers.json", tmp_path / "report.html"
    arguments = ("score", "--manifest", cases, "--roi", "auto", "--work", tmp_path / "work")
    assert run(*arguments, "-o", output).code == 0
    assert run(*arguments, "-o", page).code == 0
    numbers = json.loads(output.read_text())
    found = numbers["cases"]
    assert len(found) == 11
    assert [each["dice"] for each in found] == sorted(each["dice"] for each in found)
    assert np.mean([each["dice"] for each in found]) == pytest.approx(
        numbers["metrics"]["dice"]["value"]
    )
    for each in found[:3]:
        name = each["case"]
        p, readers = voxels(int(name[-2:]))
        readers = readers[:2] if name in ABSENT else readers
        region = automatic_region(p, readers.sum(axis=0).astype(np.uint8), SPACING)
        counts = np.stack([(~readers).sum(axis=0), readers.sum(axis=0)], axis=-1)[region]
        exact = cal.evaluate(p[region].astype(float), label_counts=counts, metrics=["ece"])
        assert each["ece"] == pytest.approx(exact["ece"].value, rel=1e-4)
        millilitres = readers.sum() / len(readers) * 2.5 / 1000
        assert each["volume_readers_ml"] == pytest.approx(millilitres)
        assert each["volume_predicted"] == (p >= 0.5).sum()
    listed = page.read_text().partition("Cases, lowest Dice first")[2]
    places = [listed.index(each["case"]) for each in found]
    assert places == sorted(places)
