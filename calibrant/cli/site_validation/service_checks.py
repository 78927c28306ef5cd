"""Checks of a running service: a synthetic batch to a model that is made for it and deleted afterwards; its results are compared with the library."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from calibrant import Pane
from calibrant.cli.connection import of_model, plain
from calibrant.cli.doctor import ERROR, service_checks
from calibrant.cli.site_validation.operation import KNOWN, close, known_rows
from calibrant.cli.site_validation.results import Part, Result, judged, noted, number
from calibrant.client import Client, ClientError, ServiceError
from calibrant.client.operations import Operation

# Served numbers come from sums in another order than the library's.
TOLERANCE = 1e-9
N_READS, WAIT_S = 20, 30.0
MAX_READ_S = 5.0


def service_results(url: str, key: str | None) -> Iterator[Result]:
    """Check the service at `url`; what was made there is deleted, also after a failure."""
    ready = True
    for each in service_checks(url):
        ready = ready and each.state != ERROR
        yield judged("operation", f"service: {each.name}", "works", each.found, each.state != ERROR)
    if not ready:
        return
    model = f"calibrant-validation-{token_hex(8)}"
    with Client(url, key) as client:
        try:
            yield from _of_a_model(client, model)
        except (ClientError, ValueError) as error:
            found = f"{type(error).__name__}: {error}"[:300]
            yield judged("operation", "service: a synthetic batch is scored", "done", found, False)
        yield _deleted(client, model)


def without_credentials(url: str) -> str:
    """Return an address without a user name and password.

    >>> without_credentials("https://ann:secret@example.org:8000/path?key=1")
    'https://example.org:8000/path'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _of_a_model(client: Client, model: str) -> Iterator[Result]:
    probabilities, labels = known_rows()
    ids = [f"{model}.{i}" for i in range(len(labels))]
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    rows: dict[str, Any] = {
        "probabilities": probabilities, "labels": labels, "ids": ids,
        "event_times": [(now - timedelta(hours=i % 5)).isoformat() for i in range(len(ids))],
    }  # fmt: skip
    target = client.model(model)
    began = time.monotonic()
    receipt = target.send(**rows, batch_id=model, wait=WAIT_S)
    waited = time.monotonic() - began
    yield judged(
        "performance", "service: time until 500 predictions are merged",
        f"at most {WAIT_S:g} s", f"{waited:.2f} s, {receipt.status}", receipt.status == "merged",
    )  # fmt: skip
    again = target.send(**rows, batch_id=model, wait=WAIT_S)
    window = {"from_": (now - timedelta(hours=6)).isoformat(), "to": (now + timedelta(hours=1)).isoformat()}  # fmt: skip
    served = target.metrics([*KNOWN], **window)
    n = int(served.about.get("n_predictions", 0))
    yield judged(
        "operation", "service: the same batch sent twice counts once", "duplicate, 500 predictions",
        f"{'duplicate' if again.duplicate else 'not a duplicate'}, {n} predictions",
        again.duplicate and n == len(ids),
    )  # fmt: skip
    expected = Pane.fill(probabilities, labels, ids=ids)
    own = expected.evaluate([*KNOWN])
    for slug in KNOWN:
        yield _equal(slug, own[slug].value, served[slug].value)
    yield _equal("null reference of ece", own["ece"].null_q95, served["ece"].null_q95)
    yield _equal(
        "temperature",
        expected.temperature().to_dict()["temperature"],
        target.temperature(**window).to_dict()["temperature"],
    )
    yield _tables(expected, target.reliability(**window))
    yield _read_times(client, model)


def _equal(what: str, expected: float | None, found: float | None) -> Result:
    return judged(
        "operation", f"service: {what} is that of the library", f"{number(expected)} within {TOLERANCE:g}",
        number(found), close(expected, found, TOLERANCE),
    )  # fmt: skip


def _tables(expected: Pane, served: Any) -> Result:
    names = ("count", "sum_confidence", "sum_correct")
    mine, theirs = (each.to_dict()["table"] for each in (expected.reliability(), served))
    differences = [abs(one[name] - two[name]) for one, two in zip(mine, theirs, strict=False) for name in names]  # fmt: skip
    largest = max(differences, default=float("inf"))
    return judged(
        "operation", "service: the reliability table is that of the library", f"{len(mine)} bins, equal within {TOLERANCE:g}",
        f"{len(theirs)} bins, largest difference {largest:.1e}",
        len(mine) == len(theirs) and largest <= TOLERANCE * 500,
    )  # fmt: skip


def _read_times(client: Client, model: str) -> Result:
    times = []
    for i in range(N_READS):
        began = time.monotonic()
        # Another query each time: the result of the same one would be stored.
        client.model(model).metrics(f"ece(min_count={i})")
        times.append(time.monotonic() - began)
    median = statistics.median(times)
    return judged(
        "performance", f"service: median time of {N_READS} reads", f"at most {MAX_READ_S:g} s",
        f"{1e3 * median:.1f} ms; longest {1e3 * max(times):.1f} ms", median <= MAX_READ_S,
    )  # fmt: skip


def _deleted(client: Client, model: str) -> Result:
    check, expected = "service: the model of the check is deleted", "no longer there"
    part: Part = "operation"
    try:
        client.run(Operation("DELETE", of_model(model), plain))
    except ServiceError as error:
        if error.status == 404:
            return noted(part, check, "it was not made")
        return judged(part, check, expected, str(error)[:300], False)
    except ClientError as error:
        return judged(part, check, expected, str(error)[:300], False)
    try:
        client.run(Operation("GET", of_model(model), plain))
    except ServiceError as error:
        return judged(part, check, expected, f"status {error.status}", error.status == 404)
    return judged(part, check, expected, f"{model} is still there", False)
