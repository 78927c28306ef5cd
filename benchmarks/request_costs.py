"""`python -m benchmarks.request_costs`: CPU seconds and peak memory of the worst requests of less than 1 MB that we know.

One service with the embedded store; the CPU time is that of all its processes, and the memory is the growth of the peak of the process
that serves and computes.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
from rich.console import Console

from benchmarks.requests import KEY, Service, served
from calibrant.metrics import METRICS
from calibrant.report_sections import SECTIONS
from calibrant.results.metric_work import SLOW
from calibrant_server.service.ingest.model_rules import MAX_ROWS_BY_ID
from calibrant_server.service.reads.reports import MAX_WORK
from calibrant_server.service.routes.score_histogram import MAX_BINS_OF_SURFACE
from calibrant_server.workers.queries.window_records import MAX_RATINGS, MAX_ROWS

MAX_CPU_S, MAX_MB, SMALL_BYTES = 1.0, 100.0, 990_000
MAX_CONTINUED = 8
# An idle service uses a few percent of a core.
PERIOD_S, IDLE_SHARE = 0.5, 0.12
EVERY_METRIC = ",".join(METRICS)
# As many as a report may have.
SLOW_METRICS = ",".join(("ece", *sorted(SLOW - {"skce", "canonical_ce"})[: MAX_WORK // 50 - 1]))
DAYS, PER_BATCH, N_SITES = 40, 60, 40
# By a part of a read's name, the longer ones first; others are of "two".
MODEL_OF = {"subgroups": "many", "named, compared": "third-a", "named": "rated"}
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=DAYS)


@dataclass
class Worst:
    """A request, by name.

    Attributes
    ----------
    meanwhile : predictions that arrive before each request that continues it
    """

    name: str
    path: str
    body: bytes | None = None
    params: dict[str, Any] = field(default_factory=dict)
    kind: str = "application/json"
    meanwhile: bytes | None = None


def columns(rng: np.random.Generator, n: int, k: int = 2, **more: Any) -> dict[str, Any]:
    """Return columns of `n` rows, with numbers of few digits: many rows per byte."""
    if k == 2:
        scores = rng.random(n).round(3).tolist()
        rows: list[list[float]] = [[each, round(1 - each, 3)] for each in scores]
    else:
        top = rng.integers(0, k, n)
        rest = round(0.1 / (k - 1), 4)
        rows = [[1 - rest * (k - 1) if i == each else rest for i in range(k)] for each in top]
    return {"probabilities": rows, "labels": rng.integers(0, k, n).tolist(), **more}


def unlabelled(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return columns of `n` rows that wait for labels by id."""
    made = columns(rng, n, ids=[f"w{i}" for i in range(n)])
    return {name: column for name, column in made.items() if name != "labels"}


def filled(make: Any, size: int = SMALL_BYTES) -> bytes:
    """Return a body with as many rows as fit."""
    n = 1_000
    n = int(size * n / len(orjson.dumps(make(n))) * 0.98)
    return orjson.dumps(make(n))


def scores(rng: np.random.Generator) -> Iterator[Worst]:
    """Yield requests to score: as many rows, metrics, bins, cases as are accepted."""
    yield Worst("score, 51,000 confidences", "/v1/score", orjson.dumps(
        {"confidences": rng.random(51_000).round(3).tolist(), "labels": rng.integers(0, 2, 51_000).tolist()}))  # fmt: skip
    for n, k in ((51_000, 2), (8_000, 10), (900, 100)):
        yield Worst(
            f"score, {n} rows of {k} classes", "/v1/score", orjson.dumps(columns(rng, n, k))
        )
    yield Worst(
        "score, every metric",
        "/v1/score",
        orjson.dumps(columns(rng, 600)),
        {"metrics": EVERY_METRIC},
    )
    yield Worst("score, skce", "/v1/score", orjson.dumps(columns(rng, 1_900)), {"metrics": "skce"})
    yield Worst("score, one metric, 3,300 bins", "/v1/score", orjson.dumps(columns(rng, 2_000)),
                {"metrics": "ece", "bins": 3_300})  # fmt: skip
    yield Worst(
        "score, default metrics, 300 bins",
        "/v1/score",
        orjson.dumps(columns(rng, 2_000)),
        {"bins": 300},
    )
    for section, n, per_case in (
        ("cases", 6_000, 20),
        ("by_case", 3_000, 20),
        ("stability_by_case", 1_500, 20),
    ):
        cases = [str(i // per_case) for i in range(n)]
        yield Worst(f"score, {section} of {n // per_case} cases", "/v1/score",
                    orjson.dumps(columns(rng, n, cases=cases)), {"metrics": "ece", "include": section})  # fmt: skip
    given = columns(rng, 3_000, cases=[str(i // 100) for i in range(3_000)])
    for section in SECTIONS:
        yield Worst(
            f"score, include={section}",
            "/v1/score",
            orjson.dumps(given),
            {"metrics": "ece", "include": section},
        )


def batches(rng: np.random.Generator) -> Iterator[Worst]:
    """Yield requests that send as many rows as fit, in each form."""
    path = "/v1/models/two/predictions"
    yield Worst("predictions, columns", path, filled(lambda n: columns(rng, n)))
    yield Worst(
        "predictions, ids", path, filled(lambda n: columns(rng, n, ids=[str(i) for i in range(n)]))
    )
    yield Worst("predictions, ids without labels", path, filled(lambda n: unlabelled(rng, n)))
    yield Worst("predictions, slices", path, filled(
        lambda n: columns(rng, n, slices={"site": [f"s{i % 3}" for i in range(n)], "kind": ["a"] * n})))  # fmt: skip
    lines = b"\n".join(b'{"probability":[0.25,0.75],"label":1}' for _ in range(26_000))
    yield Worst("predictions, NDJSON", path, lines, kind="application/x-ndjson")
    n = MAX_ROWS_BY_ID
    rows = {"ids": [f"x{i}" for i in range(n)], "labels": [1] * n}
    yield Worst("labels", "/v1/models/two/labels", orjson.dumps(rows))
    table = [[[1.0] * 3600, [1.0] * 3600], [[1.0] * 3600, [1.0] * 3600]]
    one = {"kind": "confidence", "label": table, "n_units": 1}
    yield Worst("histograms", "/v1/models/two/histograms", orjson.dumps({"histograms": [one] * 16}))
    # A second class has what the first has not, at the opposite confidence.
    rest, own = (rng.integers(0, 9, MAX_BINS_OF_SURFACE).tolist() for _ in range(2))
    label = [[rest, own], [own[::-1], rest[::-1]]]
    yield Worst("confidence histogram", "/v1/score/confidence-histogram",
                orjson.dumps({"label": label}), {"surface": "true"})  # fmt: skip
    yield Worst("probability map", "/v1/score/map", orjson.dumps(
        {"probabilities": rng.random((300, 300)).round(2).tolist(), "mask": rng.integers(0, 2, (300, 300)).tolist()}))  # fmt: skip
    yield Worst("disagreement", "/v1/models/two/disagreement", filled(
        lambda n: columns(rng, n, features=[[0.5, 0.25] for _ in range(n)])))  # fmt: skip


def reads() -> Iterator[Worst]:
    """Yield reads of a window of 960 panes with slices: nothing of them is cached."""
    for name, params in {
        "metrics": {"metrics": EVERY_METRIC},
        "metrics, default": {},
        "metrics, each hour": {"every": "PT1H"},
        "metrics, each 6 hours, ece": {"every": "PT6H", "metrics": "ece"},
        "metrics, each 2 days": {"every": "P2D"},
        # As many parts as the default metrics may have.
        "metrics, each day of a month": {"every": "P1D", "window": "P30D"},
        "metrics, by site": {"by": "site"},
        "metrics, by site, every metric": {"by": "site", "metrics": EVERY_METRIC},
        "metrics, another model": {"against": "model:three"},
        "metrics, each 10 days, another model": {"every": "P10D", "against": "model:three"},
        "reliability": {"bins": "1200", "binning": "equal_mass"},
        "temperature": {"objective": "ece", "include": "curve"},
        "temperature/surface": {},
        "calibration-map": {"method": "dirichlet"},
        "cases": {},
        "raters, named": {},
        "raters, named, compared": {"against": "model:third-b"},
        "stability": {"metric": "ace"},
        "stability, tace": {"metric": "tace", "source": "sample"},
        "stability, kernel": {"metric": "kde_ece", "source": "sample"},
        "stability, canonical": {"metric": "canonical_ce", "source": "sample"},
        "roc": {"points": "10000"},
        "uncertainty": {},
        "label-distribution": {},
        "disagreement": {},
        "confidence-histogram": {"bins": "1200"},
        "comparison": {"models": "two,three"},
        "comparison, figure": {"models": "two,three", "format": "png"},
        "reliability, png": {"format": "png"},
        "drift": {},
        "report": {},
        "report, slow metrics": {"metrics": SLOW_METRICS},
        "report, 40 subgroups": {},
        "report, 40 subgroups, slow metrics": {"metrics": SLOW_METRICS},
        "report, 40 subgroups, a day": {"window": "P1D"},
        "report, 40 subgroups, 7 days": {"window": "P7D"},
        "report, 40 subgroups, 30 days": {"window": "P30D"},
        "metrics, 40 subgroups, by site, ece": {"by": "site", "metrics": "ece"},
    }.items():
        path = name.partition(",")[0]
        model = next((each for part, each in MODEL_OF.items() if part in name), "two")
        yield Worst(
            f"GET {name}", f"/v1/models/{model}/{path}", None, {"window": f"P{DAYS + 1}D", **params}
        )


def archived(rng: np.random.Generator) -> Iterator[Worst]:
    """Yield reports to archive: the page, a PDF, and the panes of the window and of each subgroup with everything in them."""
    several = {f"{DAYS} days": f"P{DAYS + 1}D", "a day": "P1D", "7 days": "P7D"}
    for model, named, windows in (
        ("two", "", {f"{DAYS} days": several[f"{DAYS} days"]}),
        ("many", ", 40 subgroups", several),
        ("quarters", ", panes of 15 minutes", {"14 days": "P14D"}),
    ):
        for length, window in windows.items():
            for metrics, given in (("", {}), (", slow metrics", {"metrics": SLOW_METRICS})):
                body = orjson.dumps({"window": window, "tolerance": 0.05, **given})
                name = f"POST reports{named}, {length}{metrics}"
                yield Worst(name, f"/v1/models/{model}/reports", body)
                if model == "many":
                    yield Worst(
                        f"{name}, with new data", f"/v1/models/{model}/reports", body, meanwhile=of_each_site(rng)
                    )  # fmt: skip


def prepare(client: httpx.Client, rng: np.random.Generator) -> None:
    """Fill models: three with each hour of 40 days. Two of them have two sites, 50 units and 12 cases, one has 40 sites.

    Another has as many panes as are archived, of 15 minutes.
    """
    many_sites(client, rng)
    quarters(client, rng)
    for model, share in (("rated", 1), ("third-a", 3), ("third-b", 3)):
        named_raters(client, rng, model, MAX_ROWS // share)
    settings = {
        "task": "binary",
        "pane": "PT1H",
        "slices": {"site": None, "kind": None},
        "unit": "patient",
    }
    for model in ("two", "three"):
        client.put(f"/v1/models/{model}", json=settings).raise_for_status()
        for first in range(0, DAYS * 24, 20):
            times = [
                (START + timedelta(hours=first + i % 20)).isoformat() for i in range(PER_BATCH * 5)
            ]
            n = len(times)
            body = columns(
                rng, n, event_times=times, units=[f"u{i % 50}" for i in range(n)], cases=[f"c{i % 12}" for i in range(n)],
                slices={"site": [f"s{i % 2}" for i in range(n)]},
            )  # fmt: skip
            client.post(
                f"/v1/models/{model}/predictions", json=body, headers={"Prefer": "wait=60"}
            ).raise_for_status()


def many_sites(client: httpx.Client, rng: np.random.Generator) -> None:
    """Fill a model of which each of 40 sites has data in each hour."""
    settings = {"task": "binary", "pane": "PT1H", "slices": {"site": None}}
    client.put("/v1/models/many", json=settings).raise_for_status()
    for hour in range(DAYS * 24):
        body = of_each_site(rng, START + timedelta(hours=hour))
        headers = {"Content-Type": "application/json"}
        headers |= {"Prefer": "wait=60"} if hour % 24 == 23 else {}
        sent = client.post("/v1/models/many/predictions", content=body, headers=headers)
        sent.raise_for_status()


def of_each_site(rng: np.random.Generator, at: datetime | None = None) -> bytes:
    """Return a prediction of each of 40 sites, at a time or now."""
    times: dict[str, Any] = {} if at is None else {"event_times": [at.isoformat()] * N_SITES}
    sites = {"site": [f"s{i:02}" for i in range(N_SITES)]}
    return orjson.dumps(columns(rng, N_SITES, slices=sites, **times))


def quarters(client: httpx.Client, rng: np.random.Generator) -> None:
    """Fill a model with four predictions in each quarter of an hour of 14 days until now."""
    settings = {"task": "binary", "pane": "PT15M"}
    client.put("/v1/models/quarters", json=settings).raise_for_status()
    for day in range(14):
        for half in range(2):
            first = datetime.now(UTC) - timedelta(days=14 - day, hours=-12 * half)
            times = [(first + timedelta(minutes=15 * (i // 4))).isoformat() for i in range(4 * 48)]
            body = columns(rng, len(times), event_times=times)
            wait = {"Prefer": "wait=60"}
            sent = client.post("/v1/models/quarters/predictions", json=body, headers=wait)
            sent.raise_for_status()


def named_raters(client: httpx.Client, rng: np.random.Generator, model: str, n_rows: int) -> None:
    """Fill a model with so many predictions, with as many named ratings each as `GET raters` reads."""
    client.put(f"/v1/models/{model}", json={"task": "binary", "pane": "PT1H"}).raise_for_status()
    n, n_each = n_rows // 4, MAX_RATINGS / MAX_ROWS
    for first in range(0, n_rows, n):
        ids = [f"r{first + i}" for i in range(n)]
        predictions = {"ids": ids, "confidences": rng.random(n).round(3).tolist()}
        raters = [
            [f"rater-{i}" for i in range(int(n_each * (row + 1)) - int(n_each * row))]
            for row in range(n)
        ]
        given = [rng.integers(0, 2, len(each)).tolist() for each in raters]
        labels = {"ids": ids, "labels": given, "raters": raters}
        for kind, body in (("predictions", predictions), ("labels", labels)):
            path, wait = f"/v1/models/{model}/{kind}", {"Prefer": "wait=60"}
            client.post(path, json=body, headers=wait).raise_for_status()


def peak_mb(pid: int, again: bool = False) -> float:
    """Return the peak of a process's memory; with `again`, measured from now on."""
    if again:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(each.split()[1]) / 1024 for each in lines if each.startswith("VmHWM"))


def wait_until_idle(service: Service) -> float:
    """Wait until the service has no more work than when idle; return its CPU time so far."""
    before_s = service.processor_s()
    while True:
        time.sleep(PERIOD_S)
        now_s = service.processor_s()
        if now_s - before_s < IDLE_SHARE * PERIOD_S:
            return now_s
        before_s = now_s


def measured(service: Service, client: httpx.Client, worst: Worst) -> tuple[int, float, float]:
    """Return status, CPU seconds and megabytes of one request, with the work that it leaves behind."""
    before_s = wait_until_idle(service)
    before_mb = peak_mb(service.process.pid, again=True)
    headers = {"Content-Type": worst.kind, "Prefer": "wait=60"}
    if worst.body is None:
        answer = client.get(worst.path, params=worst.params, headers={"Prefer": "wait=60"})
    else:
        answer = client.post(worst.path, params=worst.params, content=worst.body, headers=headers)
    cpu_s, more_mb = wait_until_idle(service) - before_s, peak_mb(service.process.pid) - before_mb
    if answer.status_code >= 300:
        print(answer.text[:300])
    return answer.status_code, cpu_s, more_mb


@contextmanager
def started(data: Path, rng: np.random.Generator) -> Iterator[tuple[Service, httpx.Client]]:
    """Run a service on the state in a directory; it has imported what it needs, and read nothing."""
    # Housekeeping is no work of a request. It runs at the start too, and would merge the days that are old enough then.
    without = {"CALIBRANT_HOUSEKEEPING": "PT24H", "CALIBRANT_COMPACT_AFTER": "0"}
    with served(str(data), **without) as service:
        address = f"http://127.0.0.1:{service.port}"
        headers = {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=address, headers=headers, timeout=600) as client:
            client.post("/v1/score", json=columns(rng, 50)).raise_for_status()
            # The first figure of a process loads matplotlib.
            figure = {"Accept": "image/png"}
            client.post("/v1/score", json=columns(rng, 50), headers=figure).raise_for_status()
            yield service, client


def main() -> None:
    """Measure and print a table. Each read has a service of its own on a copy of the state: nothing is cached or merged."""
    parser = argparse.ArgumentParser(description="Costs of the worst requests.")
    parser.add_argument("--only", default="", help="measure requests whose name contains this text")
    only, rng = parser.parse_args().only, np.random.default_rng(7)
    posts = [each for each in scores(rng) if only in each.name]
    sent = list(batches(rng))
    with tempfile.TemporaryDirectory() as folder:
        data, copy = Path(folder) / "data", Path(folder) / "copy"
        with started(data, rng) as (service, client):
            prepare(client, rng)
            for worst in posts:
                show(service, client, worst)
            # Reads are of a state with all of them.
            for worst in sent:
                if only in worst.name:
                    show(service, client, worst)
                else:
                    measured(service, client, worst)
        for worst in (each for each in (*reads(), *archived(rng)) if only in each.name):
            shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*.sock", "*.pid"))
            with started(copy, rng) as (service, client):
                show(service, client, worst)
            shutil.rmtree(copy)


def show(service: Service, client: httpx.Client, worst: Worst) -> None:
    """Print the costs of one request, and of the same that continue it: what archives a report may be sent several times."""
    size, name = len(worst.body or b"") / 1e6, worst.name
    for i in range(MAX_CONTINUED):
        if i and worst.meanwhile is not None:
            path = f"{worst.path.rpartition('/')[0]}/predictions"
            measured(service, client, Worst("", path, worst.meanwhile))
        status, cpu_s, more_mb = measured(service, client, worst)
        mark = " <- above the bound" if cpu_s > MAX_CPU_S or more_mb > MAX_MB else ""
        figures = f"{size:.2f} | {status} | {cpu_s:.2f} | {more_mb:.0f} |{mark}"
        Console().print(f"| {name} | {figures}", highlight=False, soft_wrap=True)
        if status != 503:
            break
        name = f"{worst.name}, continued"


if __name__ == "__main__":
    main()
