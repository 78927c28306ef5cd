"""Probability maps with contours: counts by hand, the figure's regions, and what is rejected."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/score/map"
MAP = {
    "probabilities": [[0.9, 0.8, 0.1], [0.5, 0.4, 0.2]],
    "mask": [[1, 0, 0], [1, 1, 0]],
}


async def test_counts_and_dice_by_hand(client):
    found = (await client.post(URL, json=MAP)).json()
    counts = {"true_positive": 2, "false_negative": 1, "false_positive": 1, "dice": 4 / 6}
    assert found == {"height": 2, "width": 3, "threshold": 0.5, "masks": {"reference": counts}}
    high = (await client.post(f"{URL}?threshold=0.95", json=MAP)).json()["masks"]["reference"]
    assert (high["true_positive"], high["false_negative"], high["dice"]) == (0, 3, 0.0)
    empty = MAP | {"mask": [[0, 0, 0]] * 2}
    nothing = (await client.post(f"{URL}?threshold=1", json=empty)).json()["masks"]["reference"]
    assert nothing["dice"] is None


def gids(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    names = ("true_positive", "false_negative", "false_positive")
    return [each.get("id") for each in root.iter() if each.get("id") in names]


async def test_the_figure_outlines_the_regions_that_are_there(client):
    drawn = await client.post(f"{URL}?format=svg&class=liver", json=MAP)
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert b"Probability of class liver" in drawn.content
    assert sorted(gids(drawn.content)) == ["false_negative", "false_positive", "true_positive"]
    perfect = MAP | {"mask": [[1, 1, 0], [1, 0, 0]]}
    assert gids((await client.post(f"{URL}?format=svg", json=perfect)).content) == ["true_positive"]
    image = np.arange(6.0).reshape(2, 3).tolist()
    shown = await client.post(URL, json=MAP | {"image": image}, headers={"Accept": "image/png"})
    assert shown.content.startswith(b"\x89PNG")
    plain = await client.post(URL, json=MAP, headers={"Accept": "image/png"})
    assert shown.content != plain.content


async def test_each_reader_has_a_panel(client):
    masks = {f"reader {i}": MAP["mask"] for i in range(4)}
    body = {"probabilities": MAP["probabilities"], "masks": masks}
    found = (await client.post(URL, json=body)).json()["masks"]
    assert list(found) == list(masks) and found["reader 3"]["true_positive"] == 2
    drawn = await client.post(f"{URL}?format=svg", json=body)
    assert gids(drawn.content).count("false_negative") == 4
    assert b"reader 3: TP 2, FN 1, FP 1" in drawn.content


@pytest.mark.parametrize(
    ("change", "pointer", "rule"),
    [
        ({"mask": None}, "/mask", "missing"),
        ({"masks": {"a": MAP["mask"]}}, "/mask", "missing"),
        ({"mask": [[1, 0, 0]]}, "/mask", "shape"),
        ({"mask": [[1, 0, 0], [1, 2, 0]]}, "/mask", "one_of"),
        ({"mask": [[1, 0, 0], [1, "x", 0]]}, "/mask", "number"),
        ({"mask": None, "masks": {}}, "/masks", "length"),
        ({"mask": None, "masks": {"a": [[1]]}}, "/masks/0", "shape"),
        ({"probabilities": [[0.1, 0.2, 1.2], [0, 0, 0]]}, "/probabilities", "range"),
        ({"probabilities": [[0.1], [0.2, 0.3]]}, "/probabilities", "shape"),
        ({"probabilities": [[0.0] * 4097]}, "/probabilities", "shape"),
        ({"probabilities": []}, "/probabilities", "shape"),
        ({"image": [[True, 1, 1], [1, 1, 1]]}, "/image", "number"),
        ({"labels": []}, "/labels", "unknown_field"),
    ],
)
async def test_what_is_no_map_is_rejected(client, change, pointer, rule):
    rejected = await client.post(URL, json=MAP | change)
    [error] = problem(rejected, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == (pointer, rule)


async def test_queries_are_checked(client):
    for query in ("threshold=0", "threshold=2", "format=gif", "contours=yes", "class=a%00b"):
        problem(await client.post(f"{URL}?{query}", json=MAP), 422, "invalid-query")
    rejected = await client.post(URL, json=MAP, headers={"Accept": "text/html"})
    assert rejected.status_code == 406


async def test_outlines_of_noise_are_counted_and_not_drawn(client):
    rows, columns = np.indices((400, 400))
    noise = ((rows + columns) % 2).tolist()
    body = {"probabilities": noise, "mask": [[0] * 400] * 400}
    assert (await client.post(URL, json=body)).status_code == 200
    found = problem(await client.post(f"{URL}?format=png", json=body), 422, "invalid-input")
    [rule] = found["errors"]
    # Each of the 400 * 400 / 2 pixels of the chessboard has four sides.
    assert rule["rule"] == "outline" and "320,000 sides" in rule["detail"]


@pytest.mark.parametrize("name", ["", "r" * 61, "a\u0000b", "a\nb"])
async def test_names_of_masks_are_not_clipped(client, name):
    body = {"probabilities": MAP["probabilities"], "masks": {name: MAP["mask"]}}
    found = problem(await client.post(URL, json=body), 422, "invalid-input")
    assert found["errors"][0]["pointer"] == "/masks"
