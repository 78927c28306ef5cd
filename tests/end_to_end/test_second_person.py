"""People whom a proxy names, through the complete service: promotions by two of them, and what is recorded of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.end_to_end.deployment import Deployment
from tests.waiting import PATIENCE_S

URL = "/v1/models/guarded"
ROLES = {"quality": {"scopes": ["read", "admin", "ingest"]}, "readers": {"scopes": ["read"]}}
PROXY = "127.0.0.2"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    keys = {"keys": [{"sha256": hashlib.sha256(b"robot").hexdigest(), "name": "robot", "role": "pipeline"}]}  # fmt: skip
    environment = {
        "CALIBRANT_KEYS": json.dumps(keys),
        "CALIBRANT_PROXY_ADDRESSES": PROXY,
        "CALIBRANT_ROLES": json.dumps(ROLES),
        "CALIBRANT_SECOND_PERSON": "true",
    }
    with Deployment(tmp_path_factory.mktemp("guarded"), **environment) as found:
        yield found


def person(service: Deployment, name: str, *roles: str, address: str = PROXY) -> httpx.Client:
    """A client of a person behind the proxy, which is another address of this machine."""
    headers = {"X-Forwarded-User": name, "X-Forwarded-Groups": ",".join(roles)}
    return httpx.Client(
        base_url=f"http://127.0.0.1:{service.port}", headers=headers, timeout=PATIENCE_S,
        transport=httpx.HTTPTransport(local_address=address),
    )  # fmt: skip


def promote(client: httpx.Client, version: int, etag: str | None, reason: str) -> httpx.Response:
    condition = {"If-None-Match": "*"} if etag is None else {"If-Match": etag}
    body = {"version": version, "reason": reason, "override": True}
    return client.put(f"{URL}/maps/current", json=body, headers=condition)


def test_a_promotion_takes_two_people(service: Deployment) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(2), 200)
    rows = {"confidences": p[:, 1].tolist(), "labels": rng.integers(0, 2, 200).tolist()}
    with person(service, "Ann Lee", "quality") as ann, person(service, "Bo", "quality") as bo:
        assert ann.put(URL, json={"task": "binary"}).status_code == 201
        sent = ann.post(f"{URL}/predictions", json=rows, headers={"Prefer": "wait=60"})
        assert sent.json()["status"] == "merged", sent.text
        for method in ("temperature", "platt"):
            made = ann.post(f"{URL}/maps", json={"window": "P1D", "method": method})
            assert made.status_code == 201, made.text
        first = promote(ann, 1, None, "validated in October")
        assert first.status_code == 202, first.text
        pending = first.json()["pending"]
        assert (pending["version"], pending["requested_by"], pending["requested_role"]) == (1, "Ann Lee", "quality")  # fmt: skip
        assert ann.get(f"{URL}/maps/current").status_code == 404
        assert bo.get(f"{URL}/maps").json()["pending"] == pending
        assert "Waiting for a second person" in bo.get("/models/guarded").text
        # Neither the same person nor another version makes it effective.
        assert promote(ann, 1, None, "again").status_code == 202
        assert promote(bo, 2, None, "another one").status_code == 202
        assert promote(ann, 1, None, "validated in October").status_code == 202
        done = promote(bo, 1, None, "I have checked it")
        assert done.status_code == 200, done.text
        record = done.json()["promotion"]
        assert (record["promoted_by"], record["promoted_role"], record["reason"]) == ("Bo", "quality", "I have checked it")  # fmt: skip
        assert (record["requested_by"], record["requested_role"]) == ("Ann Lee", "quality")
        assert record["requested_reason"] == "validated in October"
        listed = ann.get(f"{URL}/maps").json()
        assert listed["pending"] is None and listed["promotions"] == [record]
        # A request on top of an earlier promotion is over.
        assert promote(ann, 2, done.headers["etag"], "better").status_code == 202
        with httpx.Client(
            base_url=ann.base_url, headers={"Authorization": "Bearer robot"}
        ) as robot:
            by_key = promote(robot, 2, done.headers["etag"], "automatic")
        assert by_key.status_code == 200, by_key.text
        assert by_key.json()["promotion"]["promoted_role"] == "pipeline"
        actions = ann.get("/v1/audit").json()["entries"]
        named = {(each["action"], each["key"]["name"], each["key"].get("role")) for each in actions}
        assert {("promoteMap", "Bo", "quality"), ("promoteMap", "robot", "pipeline")} <= named
        export = ann.get(f"{URL}/export").text
        assert '"field":"q"' not in export and '"field": "q"' not in export


def test_a_forged_address_signs_nobody_in(service: Deployment) -> None:
    for address, forwarded in (("127.0.0.1", PROXY), ("127.0.0.3", PROXY), ("127.0.0.1", "")):
        with person(service, "eve", "quality", address=address) as eve:
            headers = {"X-Forwarded-For": forwarded} if forwarded else {}
            rejected = eve.get("/v1/models", headers=headers)
            assert rejected.status_code == 401, (address, forwarded)
    with person(service, "cy", "readers") as reader:
        through = {"X-Forwarded-For": "192.0.2.7"}
        assert reader.get("/v1/models", headers=through).status_code == 200
        assert reader.put(URL, json={"task": "binary"}, headers=through).status_code == 403


def test_a_person_uses_the_pages(service: Deployment) -> None:
    with person(service, "Ann Lee", "quality") as ann, person(service, "cy", "readers") as reader:
        page = ann.get("/models/guarded")
        assert page.status_code == 200 and "<form" in page.text
        assert "Promote" not in reader.get("/models/guarded").text
        token = page.text.partition('name="token" value="')[2].partition('"')[0]
        made = ann.post("/models/guarded/maps", data={"token": token, "method": "beta"})
        assert made.status_code in (302, 303), made.text
        stolen = person(service, "Bo", "quality")
        with stolen:
            wrong = stolen.post("/models/guarded/maps", data={"token": token, "method": "beta"})
            assert wrong.status_code >= 400
