"""A request that is repeated is one line of the log, not one for each attempt."""

from __future__ import annotations

import asyncio
import json
import traceback

import httpx
import pytest

import calibrant as cal
from calibrant.client import transport
from calibrant.client.errors import NO_SERVICE
from tests.client.service import Service, problem
from tests.ports import reserved_port

RECEIPT = {"batch_id": "b", "status": "accepted", "accepted": 1, "rejected": 0, "errors": []}
COLUMNS = {"probabilities": [[0.7, 0.3]], "labels": [1]}


def busy() -> tuple[int, dict[str, str], bytes]:
    return problem(503, type="/v1/problems/store-unavailable", detail="The store is away.")


class Busy:
    """Responds 503 a few times."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, body: object) -> tuple[int, dict[str, str], bytes]:
        self.left -= 1
        return busy() if self.left >= 0 else (202, {}, json.dumps(RECEIPT).encode())


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(each.name, each.getMessage()) for each in caplog.records]


def test_an_address_without_a_service_is_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrant.client.transport.READ_RETRIES_S", 1.0)
    with (
        cal.Client(f"http://127.0.0.1:{reserved_port()}") as client,
        pytest.raises(cal.client.ServiceUnreachable),
    ):
        client.model("m").metrics("ece")
    [(name, text)] = lines(caplog)
    assert name == "calibrant.client"
    assert text.startswith("ConnectError: ")
    assert text.endswith(f"). {NO_SERVICE} Trying again for up to 1 s.")


@pytest.mark.parametrize("is_async", [False, True])
def test_the_error_of_an_address_without_a_service_is_readable(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrant.client.transport.READ_RETRIES_S", 0.5)
    url = f"http://127.0.0.1:{reserved_port()}"

    async def read() -> None:
        async with cal.AsyncClient(url) as client:
            await client.model("m").metrics("ece")

    with cal.Client(url) as client:
        model = client.model("m")
        for call in [lambda: asyncio.run(read())] if is_async else [model.metrics, model.map]:
            with pytest.raises(cal.client.ServiceUnreachable) as caught:
                call()
            assert str(caught.value).endswith(f"). {NO_SERVICE}")
            printed = "".join(traceback.format_exception(caught.value))
            assert printed.count("Traceback") == 1
            for package in ("httpx", "httpcore"):
                assert f"/{package}/" not in printed, printed


@pytest.mark.parametrize(
    ("error", "is_silent"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), True),
        (httpx.ConnectTimeout("timed out"), True),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"), False),
        (httpx.PoolTimeout("busy"), False),
        (httpx.ReadTimeout("timed out"), False),
    ],
)
def test_a_service_is_missing_only_where_nothing_listens(
    error: httpx.TransportError, is_silent: bool
) -> None:
    assert (NO_SERVICE in str(transport._unreachable(error))) == is_silent


@pytest.mark.parametrize("is_async", [False, True])
def test_a_busy_service_is_one_line(caplog: pytest.LogCaptureFixture, is_async: bool) -> None:
    async def read(url: str) -> None:
        async with cal.AsyncClient(url) as client:
            await client.model("m").send(**COLUMNS)

    with Service(Busy(3)) as service:
        url = f"http://127.0.0.1:{service.port}"
        if is_async:
            asyncio.run(read(url))
        else:
            with cal.Client(url) as client:
                client.model("m").send(**COLUMNS)
    assert len(service.raw) == 4
    [(_, text)] = lines(caplog)
    assert text == "503 store-unavailable: The store is away. Trying again for up to 30 s."
