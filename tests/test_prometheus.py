"""Rules and expressions of the documents, on Debian's Prometheus over a simulated month and more."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import generate_latest

from calibrant_server.service.http.prometheus import Series
from calibrant_server.service.reads.model_series import drift_series
from tests.ports import reserved_port
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent
DEPLOYED = ROOT / "deploy" / "prometheus"
EXPRESSION = re.compile(r"```promql\n(.*?)```", re.DOTALL)
DAY, BINS = 86_400, 15
NOW = 1_700_006_400  # a midnight
STEP_S = 6 * 3600
pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs Debian's package prometheus",
)
# Model: days before now on which its first cohort was sealed, and from which it is scraped.
MODELS = {"month": (60, 50), "young": (20, 10), "unknown": (60, 10)}


def units_of(day: int, place: int) -> tuple[float, float, float]:
    """Return units, sum of scores and sum of labels that the cohort sealed on that day adds to a bin."""
    units = float(10 + (day * 7 + place * 3) % 11)
    score = (place + 0.5) / BINS
    return units, units * score, units * score * (0.8 if place % 2 else 1.1)


def sums_at(first: int, day: int) -> list[list[float]]:
    """Return the sums of all cohorts sealed from `first` to `day`, by kind and bin."""
    added = [[units_of(each, place) for place in range(BINS)] for each in range(first, day + 1)]
    return [[sum(cohort[i][kind] for cohort in added) for i in range(BINS)] for kind in range(3)]


def exposed(at_s: int) -> Iterator[tuple[str, str]]:
    """Yield every sample that a scrape at this time finds."""
    day = (at_s - NOW) // DAY
    found = {
        f"default/{model}": {
            **{"generation": "g", "scope": "score", "n_alarms": 0, "n_detectors": 1},
            **{"p": {}, "first_cohort": NOW - first * DAY},
            **{"cohort": NOW + day * DAY, "bins": sums_at(-first, day)},
        }
        for model, (first, scraped) in MODELS.items()
        if day >= -scraped
    }  # fmt: skip
    for line in generate_latest(Series(drift_series(found))).decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            yield name, value


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with the recorded past and the deployed rules; it scrapes nothing."""
    folder = tmp_path_factory.mktemp("prometheus")
    samples: dict[str, list[str]] = {}
    for at_s in range(NOW - 50 * DAY, NOW + 1, STEP_S):
        for name, value in exposed(at_s):
            samples.setdefault(name, []).append(f"{name} {value} {at_s}")
    text = "\n".join(line for lines in samples.values() for line in lines)
    (folder / "past.txt").write_text(f"{text}\n# EOF\n", encoding="utf-8")
    past = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "--max-block-duration=2048h",
        "openmetrics",
        "past.txt",
        "data",
    ]
    subprocess.run(past, cwd=folder, check=True, capture_output=True)
    (folder / "empty.yml").write_text("scrape_configs: []\n", encoding="utf-8")
    port = reserved_port()
    command = [
        "prometheus", "--config.file=empty.yml", "--storage.tsdb.path=data", "--query.lookback-delta=12h",
        "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with (
        subprocess.Popen(command, cwd=folder) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        try:
            eventually(lambda: _is_ready(client))
            yield client
        finally:
            server.terminate()


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").is_success
    except httpx.TransportError:
        return False


def result(client: httpx.Client, expression: str) -> list[dict[str, Any]]:
    """Return the samples of an expression at the end of the simulated time."""
    found = client.post("/api/v1/query", data={"query": expression, "time": NOW})
    assert found.is_success, found.text
    samples: list[dict[str, Any]] = found.json()["data"]["result"]
    return samples


def expressions(page: str) -> list[str]:
    """Return the expressions of a document."""
    return EXPRESSION.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


def recorded() -> dict[str, str]:
    """Return the expression of each recorded series."""
    groups = yaml.safe_load((DEPLOYED / "rules.yml").read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return {rule["record"]: rule["expr"] for rule in rules if "record" in rule}


def expanded(expression: str) -> str:
    """Replace recorded series by their expressions: this server has the past and not their record of it."""
    for name, rule in recorded().items():
        expression = expression.replace(name, f"({rule})")
    return expression


def test_the_configuration_is_valid():
    for command in (["config", "prometheus.yml"], ["rules", "rules.yml"]):
        checked = subprocess.run(
            ["promtool", "check", *command], cwd=DEPLOYED, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("name", ["prometheus_alerts.yml", "prometheus_model_alerts.yml"])
def test_alerts_fire_when_they_should_and_only_then(name):
    tested = subprocess.run(
        ["promtool", "test", "rules", str(ROOT / "tests" / name)],
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("page", ["drift.md", "operations.md"])
def test_every_expression_of_the_documents_is_valid(prometheus, page):
    found = expressions(page)
    assert found
    for expression in found:
        result(prometheus, expanded(expression))


def test_a_window_has_exactly_what_was_sealed_in_it(prometheus):
    """Also what was sealed before the first scrape; a window whose start is not known has no result."""
    units, error, *_ = expressions("drift.md")
    first = {"month": -29, "young": -20}  # the value 30 days ago holds the cohort of that day
    expected = {
        (model, place): [sum(units_of(day, place)[kind] for day in range(start, 1)) for kind in range(3)]
        for model, start in first.items()
        for place in range(BINS)
    }  # fmt: skip

    def by_bin(expression: str) -> dict[tuple[str, int], float]:
        samples = result(prometheus, expanded(expression))
        place = {f"{(i + 1) / BINS:.4g}": i for i in range(BINS)}
        return {
            (each["metric"]["model"], place[each["metric"]["bin"]]): float(each["value"][1])
            for each in samples
        }

    assert by_bin(units) == pytest.approx({key: each[0] for key, each in expected.items()})
    errors = {
        model: sum(abs(expected[model, i][2] - expected[model, i][1]) for i in range(BINS))
        / sum(expected[model, i][0] for i in range(BINS))
        for model in first
    }
    found = {
        each["metric"]["model"]: float(each["value"][1])
        for each in result(prometheus, expanded(error))
    }
    assert found == pytest.approx(errors)
