"""Models of the version with another layout of the store, imported from its exports: their reads are those of that version.

The exports in `tests/recorded/exports` were written by that version, and the responses were recorded from it, before its
models were exported. Only their recordings may be replaced; the exports are never written again.
"""

from __future__ import annotations

import gzip

from tests.recorded.data import NDJSON, batch, names
from tests.recorded.exchanges import FOLDER
from tests.recorded.service import Client

EXPORTS = FOLDER.with_name("exports")
READS = (
    "metrics",
    "reliability",
    "temperature",
    "calibration-map",
    "disagreement",
    "uncertainty",
    "drift",
    "baselines",
    "maps",
    "reports",
)


async def _imported(client: Client, model: str) -> None:
    """Import a model."""
    content = gzip.decompress((EXPORTS / f"{model}.ndjson.gz").read_bytes())
    path = f"/v1/models/{model}/import"
    response = await client.http.post(path, content=content, headers={"Content-Type": NDJSON})
    assert response.status_code == 201, response.text


async def _common_reads(client: Client, model: str, **window: str) -> None:
    """Reads of all kinds."""
    for kind in READS:
        params = window if kind not in ("drift", "baselines", "maps", "reports") else {}
        await client.get(f"/models/{model}/{kind}", **params)
    await client.get(f"/models/{model}/metrics", metrics="ece,brier", by="site", **window)
    await client.get(f"/models/{model}/metrics", metrics="ece", every="P1D", **window)
    await client.get(f"/models/{model}")


async def _clinic_reads(client: Client) -> None:
    """Late, changed and waiting labels, units, raters, slices, a sample, a baseline, a current map, a report."""
    path = "/models/clinic"
    await _common_reads(client, "clinic")
    await client.get(f"{path}/cases", limit="3")
    await client.get(f"{path}/raters")
    await client.get(f"{path}/maps/current")
    await client.get(f"{path}/metrics", metrics="ece,brier", against="baseline:first")
    await client.get(f"{path}/reports/1", headers={"Accept": "text/html"})
    changed = {"ids": ["t0-1", "t0-3"], "labels": [2, 2], "raters": ["ann"] * 2}
    await client.post(f"{path}/labels", {"batch_id": "later", **changed})
    arrived = batch(951, 2, ids=["waiting", "new"]) | {"labels": [None, 0]}
    await client.post(f"{path}/predictions", arrived)
    deletion = {"Prefer": "wait=60", "Idempotency-Key": "d"}
    await client.send("DELETE", f"{path}/predictions/t1-5", headers=deletion)
    await client.get(f"{path}/metrics", metrics="ece,brier,accuracy")


async def _watched_reads(client: Client) -> None:
    """Sealed cohorts, an open alarm, units that earlier cohorts counted, and a cohort that is sealed after the import."""
    path, sealed = "/models/watched", {"clock": "sealed"}
    await _common_reads(client, "watched")
    await client.get(f"{path}/drift/history", window="P10D")
    await client.get(f"{path}/metrics", metrics="ece,brier", **sealed)
    await client.get(f"{path}/reliability", bins="5", **sealed)
    found = (await client.get("/alarms", model="watched")).json()
    for alarm in found["alarms"][:1]:
        await client.post(f"/alarms/{alarm['id']}/acknowledge", {"note": "new scanner"})


async def _cold_reads(client: Client) -> None:
    """Days that were in files, and a late label of one of them."""
    path = "/models/cold"
    window = {"window": "P30D"}
    await _common_reads(client, "cold", **window)
    late = {"batch_id": "late", "ids": ["q0-1"], "labels": [1], "raters": ["ann"]}
    await client.post(f"{path}/labels", late)
    await client.get(f"{path}/metrics", metrics="ece,brier,accuracy", **window)


async def _hot_reads(client: Client) -> None:
    """Batches that several partitions filled, with a source whose offsets continue."""
    await _common_reads(client, "hot")
    await client.get("/models/hot/sources/topic")
    more = {"source": "topic", "offsets": [40, 50]}
    await client.post("/models/hot/predictions", batch(960, 10, batch_id=None) | more)
    await client.get("/models/hot/sources/topic")


async def _moved_reads(client: Client) -> None:
    """Batches before and after a move to another partition, with labels by id."""
    await _common_reads(client, "moved")
    labels = {"ids": names("m0-", 3), "labels": [0, 1, 0], "raters": ["ann"] * 3}
    await client.post("/models/moved/labels", {"batch_id": "after", **labels})
    await client.get("/models/moved/metrics", metrics="ece,brier,accuracy")


async def late_and_waiting_labels(client: Client) -> None:
    await _imported(client, "clinic")
    await _clinic_reads(client)


async def sealed_cohorts_and_an_alarm(client: Client) -> None:
    await _imported(client, "watched")
    await _watched_reads(client)


async def cold_days(client: Client) -> None:
    await _imported(client, "cold")
    await _cold_reads(client)


async def a_hot_model(client: Client) -> None:
    await _imported(client, "hot")
    await _hot_reads(client)


async def a_moved_model(client: Client) -> None:
    await _imported(client, "moved")
    await _moved_reads(client)
