"""Frozen maps through the whole service: judged on later labels, polled while they change and while processes are killed."""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import httpx
import numpy as np
import pytest
import redis

from calibrant.calibrators.map_method import digest
from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually

START = datetime(2026, 3, 1, tzinfo=UTC)
URL = "/v1/models/played/maps"


def play(deployment: Deployment, day: int, n: int, temperature: float, seed: int) -> None:
    """A day of labels that a temperature would calibrate."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0.0, 3.0, (n, 3))
    p = np.exp(z / temperature)
    p /= p.sum(axis=1, keepdims=True)
    at = (START + timedelta(days=day, hours=1)).isoformat()
    body = {
        "logits": z.tolist(),
        "labels": [int(rng.choice(3, p=row)) for row in p],
        "ids": [f"d{day}.{i}" for i in range(n)],
        "event_times": [at] * n,
    }
    deployment.post("/v1/models/played/predictions", body)


def window(first: int, last: int) -> dict[str, str]:
    days = (START + timedelta(days=day) for day in (first, last))
    return dict(zip(("from", "to"), (day.isoformat() for day in days), strict=True))


def promote(client: httpx.Client, version: int, etag: str | None, **more: object) -> httpx.Response:
    headers = {"If-None-Match": "*"} if etag is None else {"If-Match": etag}
    body = {"version": version, "reason": f"number {version}", **more}
    return client.put(f"{URL}/current", json=body, headers=headers)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory):
    """Two days that want temperature 1, two that want 3, and a frozen map of each pair."""
    with Deployment(tmp_path_factory.mktemp("maps"), n_workers=2) as deployment:
        for day, temperature in enumerate((1.0, 1.0, 3.0, 3.0)):
            play(deployment, day, 400, temperature, day)
        for first, last in ((0, 2), (2, 3)):
            answer = deployment.client.post(URL, json=window(first, last))
            assert answer.status_code == 201, answer.text
        yield deployment


def test_promotion_is_judged_on_labels_that_neither_map_was_fitted_to(
    simulated: Deployment,
) -> None:
    client = simulated.client
    one, two = (client.get(f"{URL}/{number}").json() for number in (1, 2))
    assert one["parameters"]["temperature"] == pytest.approx(1.0, abs=0.15)
    assert two["parameters"]["temperature"] == pytest.approx(3.0, abs=0.4)
    first = promote(client, 1, None)
    assert first.status_code == 200, first.text
    second = promote(client, 2, first.headers["etag"])
    assert second.status_code == 200, second.text
    evidence = second.json()["promotion"]["evidence"]
    assert evidence["beats"] and evidence["window"]["from"] == "2026-03-04T00:00:00Z"
    assert evidence["sample"]["n_drawn_from"] == 400 and evidence["n"] > 100
    assert evidence["gain"]["nll"]["interval"][0] > 0
    back = promote(client, 1, second.headers["etag"])
    assert back.status_code == 409
    assert back.json()["errors"][0]["rule"] == "not_better"
    forced = promote(client, 1, second.headers["etag"], override=True)
    assert forced.json()["promotion"]["override"] is True


def test_without_later_labels_the_procedure_is_cross_fitted(simulated: Deployment) -> None:
    client, etag = simulated.client, simulated.client.get(f"{URL}/current").headers["etag"]
    made = client.post(URL, json=window(2, 4)).json()
    promoted = promote(client, made["version"], etag)
    assert promoted.status_code == 200, promoted.text
    evidence = promoted.json()["promotion"]["evidence"]
    assert (evidence["evidence_of"], evidence["folds"]) == ("procedure", 5)
    assert (evidence["later_labels"], evidence["result"]) == ("no_labels", "shown")
    assert evidence["n"] == evidence["n_units"] == 800
    assert evidence["gain"]["nll"]["interval"][0] > 0
    assert "another scanner or site" in evidence["limits"]
    # Labels that want no temperature show nothing.
    play(simulated, 10, 300, 1.0, 10)
    plain = client.post(URL, json=window(10, 11)).json()
    promote(client, 1, promoted.headers["etag"], override=True)
    etag = client.get(f"{URL}/current").headers["etag"]
    rejected = promote(client, plain["version"], etag)
    assert (rejected.status_code, rejected.json()["errors"][0]["rule"]) == (409, "not_better")


class Poller(threading.Thread):
    """A client that asks for the current map a hundred times a second, with the tag that it holds."""

    def __init__(self, deployment: Deployment, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.base, self.stop = f"http://127.0.0.1:{deployment.port}", stop
        self.seen: list[int] = []
        self.bodies: dict[str, bytes] = {}
        self.n_unchanged = self.n_away = 0
        self.wrong: list[str] = []

    @property
    def has_seen_enough(self) -> bool:
        return len(self.seen) > 5 and self.n_unchanged > 10

    def run(self) -> None:
        etag: str | None = None
        with httpx.Client(base_url=self.base, timeout=20) as client:
            while not self.stop.is_set():
                headers = {"If-None-Match": etag} if etag else {}
                try:
                    answer = client.get(f"{URL}/current", headers=headers)
                except httpx.HTTPError:
                    self.n_away += 1
                    time.sleep(0.01)
                    continue
                etag = self.take(answer, etag)
                self.stop.wait(0.01)

    def take(self, answer: httpx.Response, etag: str | None) -> str | None:
        if answer.status_code == 304:
            self.n_unchanged += 1
            return etag
        if answer.status_code != 200:
            if answer.status_code != 503:
                self.wrong.append(answer.text)
            self.n_away += 1
            return etag
        tag, found = answer.headers["etag"], answer.json()
        if self.bodies.setdefault(tag, answer.content) != answer.content:
            self.wrong.append(f"two maps under {tag}")
        if digest(found) != found["digest"] or found["version"] != found["promotion"]["version"]:
            self.wrong.append(f"half a map: {answer.text[:300]}")
        self.seen.append(found["promotion"]["promotion"])
        return tag


def test_a_client_that_polls_never_sees_half_a_map_nor_an_older_one(simulated: Deployment) -> None:
    client = simulated.client
    stop = threading.Event()
    pollers = [Poller(simulated, stop) for _ in range(2)]
    for poller in pollers:
        poller.start()
    victims = ["http", "worker0", "store"]
    n_done = turn = 0
    # Where the pollers are slow, as many turns more as they need to see enough.
    while turn < 18 or (
        turn < 2000 and (n_done < 12 or not all(poller.has_seen_enough for poller in pollers))
    ):
        turn += 1
        if turn % 5 == 3 and victims:
            victim = victims.pop(0)
            simulated.kill(victim)
            simulated.start(victim)
            simulated.wait_ready()
        try:
            now = client.get(f"{URL}/current")
            answer = promote(client, 1 + turn % 2, now.headers["etag"], override=True)
            n_done += answer.status_code == 200
        except (httpx.HTTPError, KeyError):
            simulated.wait_ready()
    time.sleep(0.2)
    stop.set()
    for poller in pollers:
        poller.join()
        assert not poller.wrong
        assert all(before < after for before, after in pairwise(poller.seen)), poller.seen
        assert poller.has_seen_enough
    assert n_done >= 12
    listed = client.get(URL).json()
    # The list has the newest ones only, if the pollers needed many turns.
    numbers = [each["promotion"] for each in listed["promotions"]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert listed["current"] == client.get(f"{URL}/current").json()["version"]


def listed_version(deployment: Deployment) -> str:
    """The version of the map in the row of the list of models; a dash if there is none."""
    text = deployment.client.get("/").raise_for_status().text
    row = text.partition('href="/models/played"')[2].partition("</tr>")[0]
    return re.findall(r'<td class="right">([^<]*)</td>', row)[-2]


def test_the_list_of_models_shows_a_promotion_at_once(simulated: Deployment) -> None:
    client = simulated.client
    for version in (1, 2, 1):
        found = client.get(f"{URL}/current")
        before = str(found.json()["version"]) if found.is_success else "–"
        if before == str(version):
            continue
        eventually(lambda before=before: listed_version(simulated) == before)
        etag = found.headers["etag"] if found.is_success else None
        answer = promote(client, version, etag, override=True)
        assert answer.status_code == 200, answer.text
        shown = listed_version(simulated)
        # While workers compute the new status, the row may have none.
        assert shown != before or shown == "–", shown
        eventually(lambda version=version: listed_version(simulated) == str(version))


def test_an_unchanged_map_costs_two_reads_of_the_store_and_no_worker(simulated: Deployment) -> None:
    """The settings, which have the mode, and the map. Every worker is dead, and nothing is asked of any."""
    client, n = simulated.client, 300
    etag = client.get(f"{URL}/current").headers["etag"]
    for name in ("worker0", "worker1"):
        simulated.kill(name)
    try:
        with redis.Redis.from_url(simulated.store.url) as store:
            store.config_resetstat()
            statuses = [
                client.get(f"{URL}/current", headers={"If-None-Match": etag}).status_code
                for _ in range(n)
            ]
            calls = {name[8:]: each["calls"] for name, each in store.info("commandstats").items()}
        assert statuses == [304] * n
        assert 2 * n <= calls.pop("hget") <= 2 * n + 20, calls
        assert sum(calls.values()) < n / 4, calls
        assert not {"lpush", "brpop", "blpop", "evalsha", "xadd"} & set(calls), calls
    finally:
        for name in ("worker0", "worker1"):
            simulated.start(name)
        simulated.wait_ready()


def test_a_deleted_model_has_no_maps(simulated: Deployment) -> None:
    client = simulated.client
    client.put("/v1/models/gone", json={"classes": 3})
    assert client.get("/v1/models/gone/maps/current").json()["type"].endswith("map-unknown")
    client.delete("/v1/models/gone")
    assert client.get("/v1/models/gone/maps/current").json()["type"].endswith("model-unknown")


def test_after_a_promotion_the_effect_is_that_on_labels_since_then(simulated):
    """Before, the page repeated the error of the data to which the map was fitted."""
    client, path = simulated.client, "/v1/models/effect"
    client.put(path, json={"task": "binary", "pane": "PT1M"}).raise_for_status()
    rng, now = np.random.default_rng(8), datetime.now(UTC)

    def send(name: str, at: datetime) -> tuple[np.ndarray, np.ndarray]:
        z = rng.normal(0, 2, 800)
        p, y = 1 / (1 + np.exp(-z)), rng.random(800) < 1 / (1 + np.exp(-z / 2))
        columns = {"confidences": p.tolist(), "labels": y.astype(int).tolist()}
        ids = {"ids": [f"{name}{i}" for i in range(800)], "event_times": [at.isoformat()] * 800}
        simulated.post(f"{path}/predictions", columns | ids)
        return p, y

    send("old", now - timedelta(hours=1))
    client.post(f"{path}/maps", json={"method": "temperature"}).raise_for_status()
    body, headers = {"version": 1, "reason": "first"}, {"If-None-Match": "*"}
    current = client.put(f"{path}/maps/current", json=body, headers=headers).json()
    found = simulated.get(f"{path}/maps/current/effect")
    assert (found["n"], found["before"], found["reason"]) == (0, None, "no_labels")
    assert "no labels yet" in client.get("/models/effect").text
    since = datetime.fromisoformat(found["since"])
    send("same minute", since - timedelta(seconds=1))
    p, y = send("new", since + timedelta(seconds=1))
    eventually(lambda: simulated.get(f"{path}/maps/current/effect")["n"] == 800)
    found = simulated.get(f"{path}/maps/current/effect")
    odds = np.log(p / (1 - p)) / current["parameters"]["temperature"]
    for side, score in (("before", p), ("after", 1 / (1 + np.exp(-odds)))):
        cell = np.ceil(score * 10)
        error = sum(abs((score - y)[cell == b].sum()) for b in range(1, 11)) / 800
        assert found[side]["ece"]["value"] == pytest.approx(error, abs=1e-6), side
        assert f"{error:.3f}" in client.get("/models/effect").text
    drawn = client.get("/models/effect/figures/map_effect")
    assert drawn.status_code == 200 and "Before and after map version 1" in drawn.text
    assert "Before and after the map" in client.get(f"{path}/report").text
