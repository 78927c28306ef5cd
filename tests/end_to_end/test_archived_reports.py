"""Archived reports through the complete service: the page of that state with its results, beyond retention, and never changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.queries.ask import QueryResult
from tests.end_to_end.deployment import Deployment
from tests.tracing import one_process
from tests.waiting import eventually

URL = "/v1/models/kept"
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=6)
WINDOW = {"from": START.isoformat(), "to": (START + timedelta(hours=4)).isoformat()}
HTML, RESULTS = "text/html", "application/vnd.calibrant.results+json"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("archived")
    with Deployment(directory, CALIBRANT_HOUSEKEEPING="0.5", CALIBRANT_ARCHIVE_BYTES="1500000") as found:  # fmt: skip
        yield found


def fill(service: Deployment, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), 240)
    body = {
        "probabilities": p.tolist(),
        "labels": [int(rng.choice(3, p=row)) for row in p],
        "slices": {"site": ["AB"[i % 2] for i in range(240)]},
        "event_times": [(START + timedelta(hours=i % 4)).isoformat() for i in range(240)],
    }
    service.post(f"{URL}/predictions", body)


@pytest.fixture(scope="module")
def report(service: Deployment) -> dict[str, Any]:
    settings = {"task": "multiclass", "classes": 3, "slices": {"site": ["A", "B"]}}
    assert service.client.put(URL, json=settings).status_code == 201
    fill(service)
    body = WINDOW | {"tolerance": 0.05, "note": "for the <b>committee</b>"}
    made = service.client.post(f"{URL}/reports", json=body)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"{URL}/reports/1"
    again = service.client.post(f"{URL}/reports", json=body)
    assert (again.status_code, again.json()) == (200, made.json())
    found: dict[str, Any] = made.json()
    return found


@pytest.mark.parametrize("name", ["site:C", "scanner:A"])
def test_a_report_of_an_unknown_slice_is_not_archived(
    service: Deployment, report: dict[str, Any], name: str
) -> None:
    refused = service.client.post(f"{URL}/reports", json=WINDOW | {"slice": name})
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["rule"] == "undeclared_slice"
    assert service.client.get(f"{URL}/report", params={"slice": name}).status_code == 422
    known = service.client.get(f"{URL}/report", params=WINDOW | {"slice": "site:A"})
    assert known.status_code == 200, known.text


def fetch(service: Deployment, media_type: str, status: int = 200) -> bytes:
    response = service.client.get(f"{URL}/reports/1", headers={"Accept": media_type})
    assert response.status_code == status, response.text
    return response.content


def test_page_and_results_have_the_digests_of_the_list(
    service: Deployment, report: dict[str, Any]
) -> None:
    listed = service.get(f"{URL}/reports")["reports"]
    assert listed == [report] and json.loads(fetch(service, "application/json")) == report
    page, results = fetch(service, HTML), fetch(service, RESULTS)
    assert hashlib.sha256(page).hexdigest() == report["sha256"]
    assert hashlib.sha256(results).hexdigest() == report["results_sha256"]
    assert report["results_sha256"] in page.decode()
    assert report["created_by"] and report["parameters"]["tolerance"] == 0.05


def test_its_results_are_those_of_the_reads_and_of_the_page(
    service: Deployment, report: dict[str, Any]
) -> None:
    results = json.loads(fetch(service, RESULTS))
    of_parts = {f"class {k}" for k in range(3)} | {"subgroup site:A", "subgroup site:B"}
    assert {*results} == {
        "metrics",
        "reliability",
        "temperature",
        "drift",
        "raters",
        "series",
    } | of_parts
    served = service.get(f"{URL}/metrics", metrics="ece,brier", include="details", **WINDOW)
    for slug in ("ece", "brier"):
        value = served["metrics"][slug]["value"]
        assert results["metrics"]["metrics"][slug]["value"] == pytest.approx(value, abs=1e-12)
    of_site = service.get(f"{URL}/metrics", metrics="ece", slice="site:A", **WINDOW)
    found = results["subgroup site:A"]["metrics"]["ece"]
    assert found["value"] == pytest.approx(of_site["metrics"]["ece"]["value"], abs=1e-12)
    text = " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", fetch(service, HTML).decode(), flags=re.DOTALL).split())  # fmt: skip
    value = results["metrics"]["metrics"]["ece"]["value"]
    assert f"Expected calibration error is {value:.3f}" in text


def test_later_data_retention_and_deletion_do_not_change_it(
    service: Deployment, report: dict[str, Any]
) -> None:
    before = {media: fetch(service, media) for media in (HTML, RESULTS)}
    fill(service, seed=1)
    body = WINDOW | {"tolerance": 0.05}
    second = service.client.post(f"{URL}/reports", json=body)
    assert second.status_code == 201 and second.json()["report"] == 2
    assert second.json()["results_sha256"] != report["results_sha256"]
    # Nothing of the window is retained any longer.
    patched = service.client.patch(URL, json={"retention": "PT1H"}, headers={"If-Match": "*"})
    assert patched.status_code == 200, patched.text
    eventually(lambda: service.get(f"{URL}/metrics", **WINDOW)["n_predictions"] == 0)
    assert {media: fetch(service, media) for media in before} == before
    rejected = service.client.delete(URL)
    assert (rejected.status_code, rejected.json()["type"]) == (409, "/v1/problems/reports-archived")
    assert "2 archived reports" in rejected.json()["detail"]
    for method in ("PUT", "PATCH", "DELETE"):
        changed = service.client.request(method, f"{URL}/reports/1")
        assert changed.status_code == 405


def test_an_export_with_reports_is_imported_with_the_same_pages_and_results(
    service: Deployment, report: dict[str, Any]
) -> None:
    lines = {"content-type": "application/x-ndjson"}
    content = service.client.get(f"{URL}/export", params={"reports": True}).content
    assert json.loads(content.splitlines()[-1])["left_out"] == {"reports": 0}
    made = service.client.post("/v1/models/copied/import", content=content, headers=lines)
    assert made.status_code == 201, made.text
    assert service.get("/v1/models/copied/reports")["reports"][0] == report
    for media_type in (HTML, RESULTS):
        headers = {"Accept": media_type}
        copied = service.client.get("/v1/models/copied/reports/1", headers=headers)
        assert copied.content == fetch(service, media_type)
    other = hashlib.sha256(b"another page").hexdigest()
    damaged = content.replace(report["sha256"].encode(), other.encode())
    rejected = service.client.post("/v1/models/damaged/import", content=damaged, headers=lines)
    assert rejected.status_code == 422 and "digests of its summary" in rejected.text
    assert service.client.get("/v1/models/damaged").status_code == 404


def test_an_unchanged_report_is_not_sent_again(service: Deployment, report: dict[str, Any]) -> None:
    tags = set()
    for media in (HTML, RESULTS, "application/json"):
        first = service.client.get(f"{URL}/reports/1", headers={"Accept": media})
        tags.add(first.headers["etag"])
        again = {"Accept": media, "If-None-Match": first.headers["etag"]}
        assert service.client.get(f"{URL}/reports/1", headers=again).status_code == 304
    assert len(tags) == 3
    missing = service.client.get(f"{URL}/reports/99")
    assert (missing.status_code, missing.json()["type"]) == (404, "/v1/problems/report-unknown")


def test_the_archive_is_bounded_and_goes_with_the_model(
    service: Deployment, report: dict[str, Any]
) -> None:
    def one_more(number: int) -> int:
        body = {"window": "P1D", "note": f"number {number}"}
        response = service.client.post(f"{URL}/reports", json=body)
        if response.status_code == 409:
            assert response.json()["type"] == "/v1/problems/archive-full"
        return response.status_code

    statuses = [one_more(0)]
    while statuses[-1] == 201:
        statuses.append(one_more(len(statuses)))
    assert statuses[0] == 201 and statuses[-1] == 409, statuses
    total = sum(each["stored_bytes"] for each in service.get(f"{URL}/reports")["reports"])
    assert total <= 1_500_000
    assert service.client.delete(URL, params={"reports": "delete"}).status_code == 204
    assert service.client.put(URL, json={"task": "binary"}).status_code == 201
    assert service.get(f"{URL}/reports")["reports"] == []


def test_reports_archived_while_their_model_is_deleted(service: Deployment) -> None:
    """Each request has an ordinary outcome, and no report of a former model is listed of a new one.

    A report whose model is replaced again and again is late: 503, to be sent again.
    """
    url = "/v1/models/short-lived"
    statuses: list[tuple[str, int]] = []

    def archive() -> None:
        for _ in range(12):
            made = service.client.post(f"{url}/reports", json={"window": "P1D"})
            statuses.append(("archive", made.status_code))

    for _ in range(5):
        assert service.client.put(url, json={"task": "binary"}).status_code == 201
        rows = {"confidences": [0.2, 0.7], "labels": [0, 1]}
        service.post(f"{url}/predictions", rows)
        with ThreadPoolExecutor(2) as threads:
            archiving = [threads.submit(archive) for _ in range(2)]
            while not all(each.done() for each in archiving):
                gone = service.client.delete(url)
                statuses.append(("delete", gone.status_code))
                if gone.status_code == 409:
                    assert len(service.get(f"{url}/reports")["reports"]) == 1
                    assert service.client.delete(url, params={"reports": "delete"}).status_code == 204  # fmt: skip
                assert service.client.put(url, json={"task": "binary"}).status_code in (200, 201)
        assert service.client.delete(url, params={"reports": "delete"}).status_code == 204
    allowed = {"archive": {200, 201, 404, 503}, "delete": {204, 409}}
    assert all(status in allowed[name] for name, status in statuses), statuses
    assert ("archive", 404) in statuses or ("archive", 201) in statuses


@pytest.mark.anyio
async def test_a_model_replaced_while_its_report_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of both models are not joined: the request is late, and the next one archives a report of the new model."""
    url, result, n_read = "/v1/models/replaced", ReadService.result, 0
    settings = {"task": "binary", "slices": {"site": ["A"]}}
    async with one_process(tmp_path) as client:

        async def replaced_once(*arguments: Any) -> QueryResult:
            nonlocal n_read
            found = await result(*arguments)
            n_read += 1
            if n_read == 1:
                assert (await client.delete(url)).status_code == 204
                assert (await client.put(url, json=settings)).status_code == 201
            return found

        monkeypatch.setattr(ReadService, "result", replaced_once)
        assert (await client.put(url, json=settings)).status_code == 201
        body = {"window": "P1D"}
        late = await client.post(f"{url}/reports", json=body)
        assert (late.status_code, late.headers["retry-after"]) == (503, "2")
        assert "settings of the model changed" in late.json()["detail"]
        assert (await client.post(f"{url}/reports", json=body)).status_code == 201
        assert (await client.post(f"{url}/reports", json=body)).status_code == 200


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
