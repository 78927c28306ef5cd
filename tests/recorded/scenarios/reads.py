"""Every kind of read over one window."""

from __future__ import annotations

from tests.recorded.data import clinic, confidences, drawn_binary, names, probabilities, times
from tests.recorded.service import Client

CSV = {"Accept": "text/csv"}


async def _clinic(client: Client) -> str:
    path = "/models/clinic"
    await client.put(
        path, {"classes": ["cat", "dog", "owl"], "slices": {"site": ["S0", "S1"], "device": None}}
    )
    body = clinic(400, 120, raters=None)
    body.pop("raters")
    labels = body.pop("labels")
    await client.post(f"{path}/predictions", body)
    raters = [["ann", "bob", "eve", "zoe"][: len(each)] for each in labels]
    await client.post(
        f"{path}/labels", {"batch_id": "l", "ids": body["ids"], "labels": labels, "raters": raters}
    )
    return path


async def _binary(client: Client) -> str:
    values = confidences(401, 160)
    body = {
        "batch_id": "b",
        "confidences": values,
        "labels": drawn_binary(401, values, 0.04),
        "units": names("u", 160, 40),
        "event_times": times(160, 3),
        "slices": {"site": names("S", 160, 2)},
    }
    await client.put("/models/binary", {"task": "binary"})
    await client.post("/models/binary/predictions", body)
    return "/models/binary"


async def reliability(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {},
        {"bins": "5"},
        {"bins": "5", "binning": "equal_mass"},
        {"bins": "5", "edges": "left"},
        {"bins": "5", "raters": "mean"},
        {"bins": "5", "raters": "majority"},
        {"bins": "5", "raters": "single"},
        {"bins": "5", "scope": "class:dog"},
        {"bins": "5", "scope": "all"},
        {"bins": "5", "min_count": "20"},
        {"bins": "5", "ci": "0.8"},
        {"bins": "5", "slice": "site:S1"},
        {"bins": "5", "against": "window:P2D", "window": "P4D"},
        {"bins": "7"},
        {"bins": "5000"},
        {"format": "png", "bins": "5"},
        {"format": "svg", "bins": "5"},
        {"format": "gif"},
    ):
        await client.get(f"{path}/reliability", **query)
    await client.get(f"{path}/reliability", bins="5", headers=CSV)
    await client.get(
        f"{path}/reliability", bins="5", headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    await client.get(f"{path}/reliability", bins="5", headers={"Accept": "application/x-unknown"})
    binary = await _binary(client)
    await client.get(f"{binary}/reliability")
    await client.get(f"{binary}/reliability", scope="top_label", bins="4")


async def raters(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {},
        {"metric": "brier"},
        {"metric": "lp_ece(order=2)", "bins": "5"},
        {"scope": "class:cat"},
        {"binning": "equal_mass"},
        {"slice": "site:S0"},
        {"metric": "unknown"},
        {"min_count": "10"},
        {"against": "window:P2D", "window": "P4D"},
    ):
        await client.get(f"{path}/raters", **query)


async def disagreement(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {},
        {"penalty": "0.1"},
        {"bins": "5", "edges": "left"},
        {"loss_weight": "n"},
        {"concentration": "5"},
        {"compare": "true"},
        {"ci": "0.9"},
        {"penalty": "-1"},
    ):
        await client.get(f"{path}/disagreement", **query)
    rows = probabilities(402, 24)
    labels = [[i % 3, (i * 2) % 3] for i in range(24)]
    await client.post(f"{path}/disagreement", {"probabilities": rows, "labels": labels})
    await client.post(
        f"{path}/disagreement",
        {"probabilities": rows, "labels": labels, "units": names("u", 24, 12)},
        params={"instances": "true"},
    )
    await client.post(f"{path}/disagreement", {"probabilities": rows})


async def posterior(client: Client) -> None:
    path = await _clinic(client)
    rows = probabilities(403, 3)
    labels = [["cat", "dog"], 2, None]
    await client.post(
        f"{path}/posterior", {"probabilities": rows, "labels": labels, "ids": ["a", "b", "c"]}
    )
    await client.post(
        f"{path}/posterior",
        {
            "probabilities": rows,
            "label_counts": [[1, 1, 0], [0, 0, 3], [0, 0, 0]],
            "concentration": 2.5,
        },
    )
    await client.post(
        f"{path}/posterior",
        {"probabilities": rows, "labels": labels, "concentration": [1.0, 2.0, 3.0]},
    )
    members = [rows, rows[::-1]]
    await client.post(f"{path}/posterior", {"members": members, "labels": labels})
    weighted = {"members": members, "labels": labels, "member_weights": [3.0, 1.0]}
    await client.post(f"{path}/posterior", weighted, params={"belief": "dirichlet_ensemble"})
    await client.post(f"{path}/posterior", {"probabilities": rows, "labels": [0]})
    await client.post(
        f"{path}/posterior", {"probabilities": rows, "labels": labels}, params={"belief": "other"}
    )


async def uncertainty(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {},
        {"bins": "5"},
        {"raters": "mean"},
        {"raters": "majority"},
        {"slice": "device:d1"},
        {"edges": "left"},
    ):
        await client.get(f"{path}/uncertainty", **query)
    await client.get(f"{path}/uncertainty", headers=CSV)


async def label_distribution(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {},
        {"ci": "0.9"},
        {"slice": "site:S0"},
        {"against": "window:P2D", "window": "P4D"},
        {"window": "P1D"},
    ):
        await client.get(f"{path}/label-distribution", **query)
    await client.get(f"{path}/label-distribution", headers=CSV)


async def roc(client: Client) -> None:
    path = await _binary(client)
    for query in (
        {"points": "10"},
        {"points": "6", "scope": "top_label"},
        {"points": "6", "ci": "0.8"},
        {"points": "1"},
        {"points": "6", "slice": "site:S1"},
    ):
        await client.get(f"{path}/roc", **query)
    clinic_path = await _clinic(client)
    await client.get(f"{clinic_path}/roc", points="5")
    await client.get(f"{clinic_path}/roc", points="5", scope="class:owl", raters="majority")


async def decision_curve(client: Client) -> None:
    path = await _binary(client)
    for query in (
        {"points": "9", "low": "0.1", "high": "0.9"},
        {"points": "3", "low": "0.12345", "high": "0.5", "ci": "0.8"},
        {"points": "3", "low": "0.5", "high": "0.2"},
        {"points": "2", "low": "0"},
        {"points": "3", "slice": "site:S1"},
    ):
        await client.get(f"{path}/decision-curve", **query)
    clinic_path = await _clinic(client)
    await client.get(f"{clinic_path}/decision-curve", points="3", scope="class:owl")
    await client.get(f"{clinic_path}/decision-curve", points="3", raters="majority")


async def confidence_histogram(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {"bins": "8"},
        {"bins": "8", "smoothing": "1"},
        {"bins": "8", "raters": "mean"},
        {"bins": "8", "case": "case-1"},
        {"bins": "7"},
        {"bins": "8", "slice": "site:S1"},
    ):
        await client.get(f"{path}/confidence-histogram", **query)


async def cases(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {"limit": "3"},
        {"limit": "3", "metric": "ml1_ace"},
        {"limit": "3", "metric": "ml1_mce", "bins": "10"},
        {"limit": "3", "raters": "majority"},
        {"limit": "3", "case": "case-2"},
        {"limit": "3", "case": "absent"},
        {"limit": "3", "include": "instances"},
        {"metric": "ece"},
        {"bins": "7"},
        {"limit": "0"},
    ):
        await client.get(f"{path}/cases", **query)
    response = await client.http.get(f"/v1{path}/cases", params={"limit": "20"})
    await client.get(f"{path}/cases", limit="20", cursor=response.json()["next"])
    await client.get(f"{path}/cases", limit="20", headers=CSV)


async def stability(client: Client) -> None:
    path = await _clinic(client)
    for query in (
        {},
        {"metric": "brier", "raters": "mean"},
        {"metric": "ece", "bins": "5", "subsets": "independent"},
        {"source": "sample"},
        {"source": "other"},
        {"metric": "ks"},
    ):
        await client.get(f"{path}/stability", **query)


async def comparison(client: Client) -> None:
    path = await _binary(client)
    values = confidences(401, 160)
    sharp = [each**2 for each in values]
    body = {
        "batch_id": "s",
        "confidences": sharp,
        "labels": drawn_binary(401, values),
        "units": names("u", 160, 40),
        "event_times": times(160, 3),
    }
    await client.put("/models/sharp", {"task": "binary"})
    await client.post("/models/sharp/predictions", body)
    for query in (
        {"models": "sharp"},
        {"models": "sharp", "metrics": "ece,brier,nll", "bins": "10"},
        {"models": "sharp", "metrics": "ece", "tolerance": "0.05"},
        {"models": "sharp,absent"},
        {"models": "binary"},
        {},
    ):
        await client.get(f"{path}/comparison", **query)
    for kind in (
        "metrics",
        "reliability",
        "temperature",
        "roc",
        "label-distribution",
        "uncertainty",
    ):
        await client.get(f"{path}/{kind}", against="model:sharp")


async def tables(client: Client) -> None:
    """The same results as tables."""
    path = await _clinic(client)
    for kind in (
        "metrics",
        "temperature",
        "calibration-map",
        "disagreement",
        "stability",
        "confidence-histogram",
        "roc",
        "drift",
    ):
        await client.get(f"{path}/{kind}", headers=CSV)
    await client.get(f"{path}/metrics", metrics="ece,brier", by="site", headers=CSV)
    await client.get(f"{path}/metrics", metrics="ece", every="P1D", window="P3D", headers=CSV)
