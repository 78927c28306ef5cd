"""Every metric of the catalogue with the policies, scopes and binnings that it takes."""

from __future__ import annotations

from calibrant.metrics import METRICS
from tests.recorded.data import batch, clinic, confidences, drawn_binary, names, times
from tests.recorded.service import Client

POLICIES = ("pooled", "mean", "majority", "single")
BINNED = "ece,mce,ace,rmsce,adaptive_ece,debiased_ece,lp_ece"


async def _several_raters(client: Client, model: str = "several") -> str:
    path = f"/models/{model}"
    await client.post(f"{path}/predictions", clinic(200, 120, weights=[1.0] * 120))
    return path


async def _binary(client: Client) -> str:
    values = confidences(201, 150)
    body = {
        "batch_id": "b",
        "confidences": values,
        "labels": drawn_binary(201, values),
        "event_times": times(150, 3),
    }
    await client.put("/models/binary", {"task": "binary"})
    await client.post("/models/binary/predictions", body | {"units": names("u", 150, 50)})
    return "/models/binary"


async def one_by_one(client: Client) -> None:
    path = await _several_raters(client)
    for slug in sorted(METRICS):
        await client.get(f"{path}/metrics", metrics=slug)


async def of_a_binary_model(client: Client) -> None:
    path = await _binary(client)
    await client.get(f"{path}/metrics")
    for slug in sorted(METRICS):
        await client.get(f"{path}/metrics", metrics=slug)


async def policies(client: Client) -> None:
    path = await _several_raters(client)
    for policy in POLICIES:
        await client.get(f"{path}/metrics", raters=policy)
        await client.get(f"{path}/metrics", metrics="uce,ks,kuiper,smooth_ece,auc", raters=policy)


async def scopes_and_binnings(client: Client) -> None:
    path = await _several_raters(client)
    for scope in ("top_label", "class:0", "class:2", "all", "positive", "class:9"):
        for binning in ("equal_width", "equal_mass"):
            await client.get(
                f"{path}/metrics", metrics=BINNED, scope=scope, binning=binning, bins="10"
            )
    for bins in ("1", "7", "15", "3600", "3601", "0"):
        await client.get(f"{path}/metrics", metrics="ece,classwise_ece", bins=bins)
    for edges in ("0,.5,0.9,1", "0,0.33,0.12345,1", "0,0.3333,1", "0.5,1", "0,x"):
        await client.get(
            f"{path}/metrics", metrics="ece,classwise_ece,adaptive_ece", bin_edges=edges
        )
    await client.get(f"{path}/reliability", bin_edges="0,.5,0.9,1", edges="left")
    await client.get(f"{path}/metrics", metrics="ece", bin_edges="0,1", bins="5")
    binary = await _binary(client)
    for scope in ("positive", "top_label", "class:0"):
        await client.get(f"{binary}/metrics", metrics=BINNED, scope=scope, bins="5", raters="mean")


async def options(client: Client) -> None:
    path = await _several_raters(client)
    for slugs in (
        "lp_ece(order=2),lp_ece(order=3),lp_ece",
        "kde_ece(bandwidth=0.05),kde_ece",
        "ece(bins=5),ece(bins=10,edges=left),ece(raters=majority)",
        "corp_miscalibration(score=log)",
        "tace(epsilon=0.1)",
        "brier(order=2)",
        "ece(unknown=1)",
        "MR-ECE",
        "eec",
        "ece,ece",
        "ece(",
        "",
    ):
        await client.get(f"{path}/metrics", metrics=slugs)
    await client.get(f"{path}/metrics", metrics="ece,brier", tolerance="0.05")
    await client.get(f"{path}/metrics", metrics="ece,brier", ci="0.8")
    await client.get(f"{path}/metrics", metrics="ece", ci="1.5")
    await client.get(f"{path}/metrics", metrics="ece", min_count="5")
    await client.get(f"{path}/metrics", metrics="ece", edges="left")


async def windows_and_slices(client: Client) -> None:
    path = "/models/windows"
    for day in range(8):
        body = clinic(210 + day, 24, prefix=f"w{day}-", days_ago=8 - day)
        await client.post(f"{path}/predictions", body)
    for window in ("P1D", "P3D", "PT12H", "P30D", "P0D", "x", "-P1D"):
        await client.get(f"{path}/metrics", metrics="ece,brier", window=window)
    for every in ("P1D", "P2D", "PT1H", "PT7M"):
        await client.get(f"{path}/metrics", metrics="ece", every=every, window="P4D")
    await client.get(f"{path}/metrics", metrics="ece,brier", by="site")
    await client.get(f"{path}/metrics", metrics="ece", by="device", every="P4D", window="P8D")
    await client.get(f"{path}/metrics", metrics="ece", by="nothing")
    for against in ("window:P4D", "baseline:none", "model:none", "reference", "other"):
        await client.get(
            f"{path}/metrics", metrics="ece,brier,accuracy", window="P4D", against=against
        )
    for each in ("site:S0", "site:S9", "device:d1", "site"):
        await client.get(f"{path}/metrics", metrics="ece,brier", slice=each)
    await client.get(
        f"{path}/metrics", metrics="ece", from_="2026-11-14T00:00:00Z", to="2026-11-16T00:00:00Z"
    )
    await client.get(
        f"{path}/metrics", metrics="ece", from_="2026-11-16T00:00:00Z", to="2026-11-14T00:00:00Z"
    )
    await client.get(f"{path}/metrics", metrics="ece", from_="2026-11-14T00:20:00Z", window="P1D")


async def little_and_no_data(client: Client) -> None:
    await client.put("/models/empty", {"classes": 3})
    await client.get("/models/empty/metrics")
    await client.post("/models/one/predictions", batch(220, 1))
    await client.get("/models/one/metrics")
    await client.post("/models/two/predictions", batch(221, 2))
    await client.get("/models/two/metrics", metrics="ece,brier,nll,corp_miscalibration,auc,ks")
    unlabelled = batch(222, 12, ids=names("i", 12))
    unlabelled.pop("labels")
    await client.post("/models/unlabelled/predictions", unlabelled)
    await client.get("/models/unlabelled/metrics")
    certain = {
        "batch_id": "c",
        "probabilities": [[1.0, 0.0, 0.0]] * 6,
        "labels": [0, 0, 0, 0, 0, 1],
        "event_times": times(6, 1),
    }
    await client.post("/models/certain/predictions", certain)
    await client.get("/models/certain/metrics")
    await client.get("/models/absent/metrics")


async def short_answers(client: Client) -> None:
    path = await _several_raters(client)
    await client.get(f"{path}/metrics", short=True)
    await client.get(f"{path}/metrics", short=True, metrics="ece,brier", tolerance="0.05")
    await client.get(f"{path}/metrics", short=True, metrics="ece", every="P1D", window="P4D")
    await client.get(
        f"{path}/metrics", short=True, metrics="ece", against="window:P1D", window="P1D"
    )
    await client.get(f"{path}/temperature", short=True)
    await client.get(f"{path}/temperature", short=True, objective="brier", include="heldout")
    await client.get("/models", view="status")


async def unchanged_responses(client: Client) -> None:
    path = await _several_raters(client)
    response = await client.get(f"{path}/metrics", metrics="ece")
    tag = {"If-None-Match": response.headers["etag"]}
    await client.get(f"{path}/metrics", metrics="ece", headers=tag)
    await client.get(f"{path}/metrics", metrics="brier", headers=tag)
    await client.post(f"{path}/predictions", batch(223, 5, days_ago=1))
    await client.get(f"{path}/metrics", metrics="ece", headers=tag)
    await client.get(path, headers={"If-None-Match": "*"})
