"""Bulk jobs over HTTP: every status, and a reduction that is killed half-way and run again, twice."""

from __future__ import annotations

import base64
import subprocess
import sys

import calibrant as cal
from tests.end_to_end.deployment import ROOT, Deployment
from tests.end_to_end.test_sources import HEADERS, n_of, rows
from tests.waiting import PATIENCE_S, eventually

MODEL = {"task": "multiclass", "classes": 3}
TASKS, ROWS = 40, 25


def declare(deployment, model):
    put = deployment.client.put(f"/v1/models/{model}", json=MODEL)
    assert put.status_code in (200, 201), put.text
    return f"/v1/models/{model}"


def body(task, job="j", **more):
    probabilities, labels = rows(10, task)
    return {"probabilities": probabilities.tolist(), "labels": labels.tolist()} | (
        {"job": job, "task": task} | more
    )


def send(deployment, url, document, path="predictions", **options):
    return deployment.client.post(f"{url}/{path}", json=document, headers=HEADERS, **options)


def test_a_job_from_its_first_task_to_its_last(embedded):
    url = declare(embedded, "first-to-last")
    client = embedded.client
    made = client.post(f"{url}/jobs", json={"job": "j", "tasks": 4})
    assert made.status_code == 201 and made.headers["location"] == f"{url}/jobs/j"
    assert made.json()["missing"] == [[0, 4]] and made.json()["status"] == "open"
    for task in (3, 1):
        assert send(embedded, url, body(task)).json()["duplicate"] is False
    again = send(embedded, url, body(3, batch_id="another"))
    assert again.status_code == 200 and "location" not in again.headers
    assert again.json()["duplicate"] is True
    assert again.json()["duplicate_reason"] == "task_accepted"
    known = client.post(f"{url}/jobs", json={"job": "j", "tasks": 4})
    assert known.status_code == 200 and known.headers["location"] == f"{url}/jobs/j"
    assert known.json()["missing"] == [[0, 1], [2, 3]] and known.json()["missing_next"] is None
    assert embedded.get(f"{url}/jobs/j", **{"from": 1})["missing"] == [[2, 3]]
    for task in (0, 2):
        send(embedded, url, body(task))
    job = embedded.get(f"{url}/jobs/j")
    assert (job["status"], job["accepted"], job["missing"]) == ("closed", 4, [])
    assert job["in_queue"] is False and job["closed_at"] < job["expires_at"]
    assert send(embedded, url, body(2)).json()["duplicate"] is True
    assert n_of(embedded, "first-to-last") == 40


def test_every_rejection(embedded):
    url = declare(embedded, "rejections")
    client = embedded.client

    def rejected(found, status, slug, pointer=None, rule=None):
        assert found.status_code == status, found.text
        problem = found.json()
        assert problem["type"] == f"/v1/problems/{slug}"
        if pointer is not None:
            assert [(each["pointer"], each["rule"]) for each in problem["errors"]] == [
                (pointer, rule)
            ]

    rejected(send(embedded, url, body(0)), 404, "job-unknown")
    rejected(client.get(f"{url}/jobs/j"), 404, "job-unknown")
    rejected(client.patch(f"{url}/jobs/j", json={"status": "closed"}), 404, "job-unknown")
    unknown = "/v1/models/no-such-model"
    rejected(client.post(f"{unknown}/jobs", json={"tasks": 1}), 404, "model-unknown")
    rejected(client.get(f"{unknown}/jobs"), 404, "model-unknown")
    # A first batch would make the model; the task of a job that does not exist makes nothing.
    rejected(send(embedded, unknown, body(0)), 404, "job-unknown")
    assert client.get(unknown).status_code == 404
    for invalid in (
        {},
        {"tasks": 0},
        {"tasks": 1_000_001},
        {"tasks": "3"},
        {"tasks": 1, "job": "a b"},
    ):
        rejected(client.post(f"{url}/jobs", json=invalid), 422, "invalid-input")
    assert client.post(f"{url}/jobs", json={"job": "j", "tasks": 2}).status_code == 201
    other = client.post(f"{url}/jobs", json={"job": "j", "tasks": 3})
    rejected(other, 409, "job-conflict", "/tasks", "same_tasks")
    rejected(send(embedded, url, body(2)), 422, "invalid-input", "/task", "range")
    for more, pointer, rule in (
        ({"source": "s", "offsets": [0, 10]}, "/job", "exclusive"),
        ({"source": "s"}, "/job", "exclusive"),
        ({"task": None}, "/task", "required"),
        ({"job": None}, "/job", "required"),
        ({"job": "a b"}, "/job", "id"),
        ({"task": -1}, "/task", "range"),
        ({"task": 0.0}, "/task", "range"),
        ({"task": True}, "/task", "range"),
    ):
        rejected(send(embedded, url, body(0) | more), 422, "invalid-input", pointer, rule)
    disagrees = send(embedded, url, body(0), params={"job": "j", "task": 1})
    rejected(disagrees, 422, "invalid-input", "/task", "agreement")
    rejected(client.patch(f"{url}/jobs/j", json={"status": "open"}), 422, "invalid-input")
    assert send(embedded, url, body(0)).status_code == 200
    for _ in range(2):
        closed = client.patch(f"{url}/jobs/j", json={"status": "closed"})
        assert closed.status_code == 200 and closed.json()["status"] == "closed"
    rejected(send(embedded, url, body(1)), 409, "job-closed", "/job", "job_closed")
    assert send(embedded, url, body(0)).json()["duplicate"] is True
    assert n_of(embedded, "rejections") == 10


def test_every_form_of_body_states_its_task(embedded):
    url = declare(embedded, "task-forms")
    embedded.client.post(f"{url}/jobs", json={"job": "j", "tasks": 6})
    probabilities, labels = rows(10)
    records = [
        {"probabilities": row.tolist(), "label": int(label)}
        for row, label in zip(probabilities, labels, strict=True)
    ]
    pane = cal.Pane.fill(probabilities, labels).to_bytes()
    packed = {"kind": "pane", "packed": base64.b64encode(pane).decode()}
    raw = {"content-type": "application/x-calibrant-pane"}
    requests = [
        ("predictions", {"json": {"predictions": records, "job": "j", "task": 0}}, {}),
        ("predictions?job=j&task=1", {"json": {"predictions": records}}, {}),
        ("histograms", {"json": packed | {"job": "j", "task": 2}}, {}),
        ("histograms", {"json": {"histograms": [packed], "job": "j", "task": 3}}, {}),
        ("histograms?job=j&task=4", {"content": pane}, raw),
    ]
    for n_done, (path, content, headers) in enumerate(requests, 1):
        for is_duplicate in (False, True):
            found = embedded.client.post(f"{url}/{path}", **content, headers=headers | HEADERS)
            assert found.status_code == 200, found.text
            assert found.json()["duplicate"] is is_duplicate
        assert n_of(embedded, "task-forms") == 10 * n_done
    # Where the body has fields, the query may not state the task of panes.
    found = send(embedded, url, packed, "histograms", params={"job": "j", "task": 5})
    assert found.json()["errors"][0]["rule"] == "pane_only"


def test_jobs_have_pages_and_a_maximum(embedded):
    url = declare(embedded, "many-jobs")
    client = embedded.client
    named = [client.post(f"{url}/jobs", json={"tasks": 1}).json()["job"] for _ in range(100)]
    assert len(set(named)) == 100
    full = client.post(f"{url}/jobs", json={"tasks": 1})
    assert full.status_code == 429 and full.json()["type"].endswith("quota-full")
    assert "retry-after" in full.headers
    page = client.get(f"{url}/jobs", params={"limit": 60})
    assert 'rel="next"' in page.headers["link"]
    rest = embedded.get(f"{url}/jobs", limit=60, cursor=page.json()["next"])
    assert [each["job"] for each in page.json()["jobs"] + rest["jobs"]] == sorted(named)
    assert rest["next"] is None
    unchanged = client.get(page.request.url, headers={"if-none-match": page.headers["etag"]})
    assert unchanged.status_code == 304
    client.patch(f"{url}/jobs/{named[0]}", json={"status": "closed"})
    assert client.post(f"{url}/jobs", json={"tasks": 1}).status_code == 201


def test_a_deleted_model_forgets_jobs_and_an_imported_one_remembers(embedded):
    url = declare(embedded, "moved-jobs")
    client = embedded.client
    for name, tasks in (("open", 11), ("done", 2), ("closed", 9)):
        assert client.post(f"{url}/jobs", json={"job": name, "tasks": tasks}).status_code == 201
    for name, task in (("open", 10), ("open", 3), ("done", 0), ("done", 1), ("closed", 8)):
        send(embedded, url, body(task, name))
    client.patch(f"{url}/jobs/closed", json={"status": "closed"})
    names = ("closed", "done", "open")
    before = {name: embedded.get(f"{url}/jobs/{name}") for name in names}
    exported = client.get(f"{url}/export")
    assert client.delete(url).status_code in (200, 202, 204)
    declare(embedded, "moved-jobs")
    assert embedded.get(f"{url}/jobs")["jobs"] == []
    imported = client.post(
        "/v1/models/moved-jobs-again/import",
        content=exported.content,
        headers={"content-type": exported.headers["content-type"]} | HEADERS,
    )
    assert imported.status_code in (200, 201, 202), imported.text
    url = "/v1/models/moved-jobs-again"
    assert {name: embedded.get(f"{url}/jobs/{name}") for name in names} == before
    assert send(embedded, url, body(3, "open")).json()["duplicate"] is True
    assert send(embedded, url, body(1, "done")).json()["duplicate"] is True
    assert send(embedded, url, body(0, "closed")).status_code == 409
    assert send(embedded, url, body(4, "open")).json()["duplicate"] is False
    assert n_of(embedded, "moved-jobs-again") == 60


def reduction(port):
    """Reduce what is missing, in the order of the tasks; print each task that the service has taken."""
    with cal.Client(f"http://127.0.0.1:{port}") as client:
        model = client.model("killed")
        for task in model.job("log@1", tasks=TASKS):
            send_task(model, task)
            print(task, flush=True)


def send_task(model, task):
    probabilities, labels = rows(ROWS, task)
    times = [f"2026-11-20T{task % 24:02}:00:00Z"] * ROWS
    table = {"probabilities": probabilities, "labels": labels, "at": times}
    spec = cal.PaneSpec("multiclass", 3)
    panes = cal.fill_by(table, spec, time="at", every="1h")
    return model.send_task(panes, job="log@1", task=task)


def test_a_reduction_that_is_killed_half_way_and_run_again_twice_counts_once(tmp_path):
    """The service forgets batch ids after a second; it is killed with the reduction, and so is its worker."""
    with Deployment(tmp_path, n_workers=1, CALIBRANT_IDEMPOTENCY_TTL="PT1S") as deployment:
        declare(deployment, "killed")
        command = [sys.executable, "-m", "tests.end_to_end.test_jobs", str(deployment.port)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            done = [int(first.stdout.readline()) for _ in range(TASKS // 2)]
            for name in ("http", "worker0"):
                deployment.kill(name)
            first.kill()
        deployment.start("worker0")
        deployment.start("http")
        deployment.wait_ready()
        job = deployment.get("/v1/models/killed/jobs/log@1")
        # A task may be accepted whose response was lost; none that had a response is missing.
        assert job["accepted"] in (len(done), len(done) + 1)
        assert done == list(range(job["missing"][0][0]))[: len(done)]
        for _ in range(2):
            subprocess.run(command, cwd=ROOT, check=True, timeout=PATIENCE_S)
        # A driver that knows of no job's state sends everything again, with new batch ids.
        with cal.Client(f"http://127.0.0.1:{deployment.port}") as client:
            model = client.model("killed")
            repeated = [send_task(model, task) for task in reversed(range(TASKS))]
            assert all(each.duplicate_reason == "task_accepted" for each in repeated)
            assert list(model.job("log@1", tasks=TASKS)) == []
        eventually(lambda: not deployment.get("/v1/models/killed/jobs/log@1")["in_queue"])
        found = deployment.get("/v1/models/killed/metrics", metrics="ece")
        assert found["n_predictions"] == TASKS * ROWS


if __name__ == "__main__":
    reduction(int(sys.argv[1]))
