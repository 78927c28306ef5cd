"""Names as people have them, from the batch to the page: letters of any alphabet, spaces, commas, slashes, integers."""

from __future__ import annotations

from urllib.parse import quote

from tests.end_to_end.deployment import Deployment

IDS = ["img/0001.dcm", "img|0002", 'a "b"', "Ä 4"]
UNITS = ["Müller, A", "Müller, A", 17, "O'Brien & Söhne"]
SITES = ["Zürich / Nord", "Zürich / Nord", "a|b,c:d", 5]
MODEL = "/v1/models/people"


def test_every_name_is_found_again(embedded: Deployment) -> None:
    body = {
        "probabilities": [0.9, 0.2, 0.7, 0.4], "ids": IDS, "units": UNITS, "slices": {"Standort 1": SITES},
    }  # fmt: skip
    assert embedded.post(f"{MODEL}/predictions", body)["accepted"] == 4
    labels = {"ids": IDS, "labels": [1, 0, 1, 0], "raters": ["Dr. Müller", "Dr. Müller", "r/2", 3]}
    receipt = embedded.post(f"{MODEL}/labels", labels)
    assert (receipt["joined"], receipt["waiting"]) == (4, 0)
    found = embedded.get(f"{MODEL}/metrics", metrics="accuracy", slice="Standort 1:Zürich / Nord")
    assert (found["n_predictions"], found["metrics"]["accuracy"]["value"]) == (2, 1.0)
    # The same letters, written as a letter and an accent.
    other = embedded.get(
        f"{MODEL}/metrics", metrics="accuracy", slice="Standort 1:Zu\u0308rich / Nord"
    )
    assert other["n_predictions"] == 2
    assert embedded.get(f"{MODEL}/metrics", slice="Standort 1:a|b,c:d")["n_predictions"] == 1
    assert embedded.get(f"{MODEL}/metrics", slice="Standort 1:5")["n_predictions"] == 1
    by = embedded.get(f"{MODEL}/metrics", metrics="accuracy", by="Standort 1")
    assert set(by["slices"]) == {"Zürich / Nord", "a|b,c:d", "5"}
    raters = embedded.get(f"{MODEL}/raters", metric="accuracy")
    assert set(raters["by_rater"]) == {"Dr. Müller", "r/2", "3"}
    rows = embedded.client.get(
        f"{MODEL}/metrics", params={"by": "Standort 1"}, headers={"Accept": "text/csv"}
    )
    assert "Zürich / Nord" in rows.text
    page = embedded.client.get("/models/people")
    assert page.status_code == 200


def test_the_longest_names_are_stored(embedded: Deployment) -> None:
    """256 characters, of one byte or four."""
    names = ["x" * 256, "ü" * 256, "\U0001d4d0" * 256]
    body = {"probabilities": [0.9, 0.2, 0.7], "ids": names, "units": names, "slices": {"s": names}}
    embedded.post("/v1/models/long/predictions", body)
    labels = {"ids": names, "labels": [1, 0, 1], "raters": names}
    receipt = embedded.post("/v1/models/long/labels", labels)
    assert (receipt["joined"], receipt["status"]) == (3, "merged")
    found = embedded.get("/v1/models/long/raters", metric="accuracy")
    assert set(found["by_rater"]) == set(names)
    by = embedded.get("/v1/models/long/metrics", metrics="accuracy", by="s")
    assert set(by["slices"]) == set(names)


def test_a_prediction_is_deleted_by_any_id(embedded: Deployment) -> None:
    body = {"probabilities": [0.9, 0.2, 0.7, 0.4], "ids": IDS, "labels": [1, 0, 1, 0]}
    embedded.post("/v1/models/gone/predictions", body)
    for n, name in enumerate(IDS, 1):
        answer = embedded.client.delete(
            f"/v1/models/gone/predictions/{quote(name, safe='')}", headers={"Prefer": "wait=60"}
        )
        assert answer.status_code == 200, answer.text
        assert embedded.get("/v1/models/gone/metrics", metrics="accuracy")["n_predictions"] == 4 - n
