"""The catalogue lists what there is, and everything that it lists can be requested."""

import pytest

from calibrant.calibrators import MAPS
from calibrant.metrics import METRICS, requested
from calibrant.metrics.requests import plain, shortest
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
M = "/v1/models/digits"


async def test_every_metric_is_described(client):
    found = (await client.get("/v1/metrics")).json()["metrics"]
    assert [each["slug"] for each in found] == list(METRICS)
    for each in found:
        assert each["formula"] and each["source"] and each["title"] and each["unit"], each["slug"]
        assert each["search_words"], each["slug"]
        for option in each["options"]:
            written = f"{each['slug']}({option['name']}={shortest(option['default'])})"
            assert requested(written)[0].metric.slug == each["slug"]
    assert sum(each["default"] for each in found) == 12


def test_no_word_means_two_metrics() -> None:
    """Words that differ in capitals and dashes are one; a word that is a slug is that metric's own."""
    words = [plain(word) for metric in METRICS.values() for word in metric.search_words]
    assert len(words) == len(set(words)), sorted(each for each in words if words.count(each) > 1)
    for slug, metric in METRICS.items():
        for word in metric.search_words:
            owners = [each for each in METRICS if plain(each) == plain(word)]
            assert owners in ([], [slug]), (slug, word)


@pytest.mark.parametrize(
    ("word", "slug"),
    [("MR-ECE", "ece"), ("kdeECE", "kde_ece"), ("log loss", "nll"), ("TACE", "tace")],
)
async def test_a_search_word_finds_its_metric(client, word, slug):
    found = (await client.get("/v1/metrics", params={"search": word})).json()["metrics"]
    assert slug in [each["slug"] for each in found]


async def test_a_search_word_as_a_slug_is_rejected_with_the_slug(client):
    await client.put(M, json={"classes": 3})
    words = [(word, slug) for slug, metric in METRICS.items() for word in metric.search_words]
    for word, slug in words:
        if any(letter in word for letter in " (),=") or word in METRICS:
            continue
        answer = await client.get(f"{M}/metrics", params={"metrics": word})
        detail = problem(answer, 422, "invalid-query")["errors"][0]["detail"]
        assert f"the slug is {slug}" in detail, detail


async def test_every_calibrator_is_described(client):
    found = (await client.get("/v1/calibrators")).json()["calibrators"]
    assert [each["slug"] for each in found] == list(MAPS)
    by_slug = {each["slug"]: each for each in found}
    assert [each["name"] for each in by_slug["isotonic"]["options"]] == ["centred"]
    assert [each["name"] for each in by_slug["dirichlet"]["options"]] == ["regularisation"]
    assert by_slug["histogram"]["parameters"] == ["bins", "binning"]
    await client.post(f"{M}/predictions", json=PREDICTIONS)
    for each in found:
        written = ",".join(f"{o['name']}={shortest(o['default'])}" for o in each["options"])
        asked = f"{each['slug']}({written})"
        assert (
            await client.get(f"{M}/calibration-map", params={"method": asked})
        ).status_code == 200
