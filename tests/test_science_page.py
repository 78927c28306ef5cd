"""The page of the science holds every item of the papers, and names nothing that does not exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from calibrant.metrics import METRICS, OPTIONS, requested
from tests.conforming import resolved

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "science.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
ITEMS = {"MR": 14, "PV": 21, "BF": 24, "MI": 22, "KO": 22}
ROWS = {
    cells[0]: cells
    for cells in (
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines()
    )
    if re.fullmatch("[A-Z]{2}[0-9]+", cells[0])
}
DOCUMENT = json.loads((ROOT / "openapi" / "openapi.json").read_text())
OPERATIONS = {
    f"{verb.upper()} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for verb, operation in operations.items()
}
OPERATION_PARAMETERS = [
    resolved(DOCUMENT, each)
    for operation in OPERATIONS.values()
    for each in operation.get("parameters", ())
]
PARAMETERS = {
    each["name"]: resolved(DOCUMENT, each["schema"])
    for each in OPERATION_PARAMETERS
    if each["in"] == "query"
}
# Fields of answers and bodies that the page names beside slugs and parameters.
FIELDS = {
    *(
        "p_value",
        "t_cal",
        "baselines",
        "tv",
        "bootstrap",
        "disagreement",
        "dice",
        "curve",
        "ce",
        "by_class",
        "plugin",
        "plugin_by_class",
        "by_bin",
    ),
    *("parts", "instances", "composites"),
    "inverse_temperature",
    *("hl1_ace", "sl1_ace", "weighted_sum", "gradients", "loss_weights"),
    *("null_mean", "null_q95", "weights", "reliability", "concentration", "before", "after"),
    *(
        "thresholds",
        "warnings",
        "calibrations",
        "features",
        "prediction",
        "uncertainty",
        "packed",
        "errors",
        "exact",
    ),
}
# Options of `POST /v1/score` that no metric reads.
POSTED = set(DOCUMENT["components"]["schemas"]["ScoreOptions"]["properties"])


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def allowed(name: str) -> set[str]:
    """Values of a query parameter, everywhere it stands."""
    found = json.dumps(
        [
            resolved(DOCUMENT, each["schema"])
            for each in OPERATION_PARAMETERS
            if each["name"] == name
        ]
    )
    return set(re.findall(r'"([a-z_]+)"', found))


def described(name: str) -> str:
    """What the document tells of a query parameter, in every operation that takes it."""
    return " ".join(
        each.get("description", "") for each in OPERATION_PARAMETERS if each["name"] == name
    )


def test_every_item_has_its_row() -> None:
    wanted = [f"{paper}{number}" for paper, n in ITEMS.items() for number in range(1, n + 1)]
    assert list(ROWS) == wanted
    assert {len(cells) for cells in ROWS.values()} == {6}


@pytest.mark.parametrize("item", ROWS)
def test_code_exists(item: str) -> None:
    for named in quoted(ROWS[item][2]):
        path, _, name = named.partition(":")
        assert (ROOT / path).is_file(), named
        if name:
            pattern = rf"^\s*(?:class|def) {name}\b"
            assert re.search(pattern, (ROOT / path).read_text(), re.MULTILINE), named


@pytest.mark.parametrize("item", ROWS)
def test_tests_exist(item: str) -> None:
    for named in quoted(ROWS[item][4]):
        path, _, name = named.partition("::")
        assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (
            named
        )


@pytest.mark.parametrize("item", ROWS)
def test_what_is_asked_is_known(item: str) -> None:
    for named in quoted(ROWS[item][3]):
        name, _, value = named.partition("=")
        if named.startswith("make "):
            assert f"\n{named.removeprefix('make ')}:" in MAKEFILE, named
        elif " " in named:
            assert named in OPERATIONS, named
        elif name == "figure":
            assert value.partition("(")[0] in described(name), named
        elif "(" in named:
            assert requested(named), named
        elif name == "options":
            assert value in OPTIONS or value in POSTED, named
        elif name in ("include", "against"):
            assert value.partition(":")[0] in described(name), named
        elif value:
            assert name in PARAMETERS, named
            assert value.isdigit() or value in allowed(name) or name == "scope", named
        else:
            assert {name} & {*METRICS, *PARAMETERS, *OPTIONS, *FIELDS}, named


@pytest.mark.parametrize("item", ROWS)
def test_every_item_has_code_and_tests_and_is_served_or_says_what_is_missing(item: str) -> None:
    _, _, code, asked, tests, status = ROWS[item]
    assert quoted(code) and quoted(tests) and "not built" not in asked, item
    assert status == "served", item


def test_every_metric_is_named_or_older_than_the_papers() -> None:
    named = {name for cells in ROWS.values() for name in quoted(cells[3])}
    beside = {
        "debiased_ece",
        "l2_ece_squared",
        "smooth_ece",
        "corp_miscalibration",
        "corp_uncertainty",
        # What reports to clinicians need (TRIPOD+AI), and deferral.
        "aurc",
        "calibration_intercept",
        "calibration_slope",
        "ici",
        "net_benefit",
        "oe_ratio",
    }
    assert set(METRICS) - named == beside
