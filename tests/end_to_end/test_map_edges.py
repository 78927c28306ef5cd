"""Every map over what is hardest to fit, through the whole service: a map or the reason why not, never an error."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibrators import MAPS
from tests.end_to_end.deployment import Deployment

RNG = np.random.default_rng(5)
BINARY = {
    "certain": ([0.0, 1.0, 0.4] * 30, [0, 1, 1] * 20 + [1, 0, 0] * 10),
    "constant": ([0.3] * 60, [0, 0, 1] * 20),
    "one-class": ([0.2, 0.5, 0.9] * 20, [1] * 60),
    "three": ([0.2, 0.5, 0.9], [0, 1, 1]),
    "ties": ([0.25, 0.75] * 40, [0, 1, 0, 0, 1, 1] * 13 + [0, 1]),
    "separable": ([0.2, 0.3, 0.8, 0.9] * 20, [0, 0, 1, 1] * 20),
    "unlabelled": ([0.2, 0.7], None),
}
EYE = np.eye(3)
ROWS = {
    "certain": (EYE[RNG.integers(0, 3, 90)], RNG.integers(0, 3, 90)),
    "constant": (np.tile([0.5, 0.3, 0.2], (60, 1)), RNG.integers(0, 3, 60)),
    "one-class": (RNG.dirichlet(np.ones(3), 60), np.ones(60, int)),
    "three": (RNG.dirichlet(np.ones(3), 3), np.array([0, 1, 2])),
    "ties": (np.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]] * 40), RNG.integers(0, 3, 80)),
    "ample": (RNG.dirichlet(np.ones(3), 400), RNG.integers(0, 3, 400)),
    "separable": (EYE[np.arange(90) % 3] * 0.7 + 0.1, np.arange(90) % 3),
    "unlabelled": (RNG.dirichlet(np.ones(3), 5), None),
}
SETS = [("binary", name) for name in BINARY] + [("rows", name) for name in ROWS]
NO_MAP = {"unlabelled": "no_labels", "one-class": "one_class"}
# A share of hits is one whatever the scores; temperatures fall to their bound.
OF_ONE_CLASS = ("histogram", "isotonic", "temperature")


def is_explained(evidence: dict) -> bool:
    """Whether a recommendation of nothing has its cause, or for each map the reason why it is not fitted."""
    if "cause" in evidence:
        return bool(evidence["cause"])
    maps = evidence["candidates"].keys() - {"none"}
    return bool(maps) and all(evidence["candidates"][name].get("reason") for name in maps)


@pytest.fixture(scope="module")
def filled(embedded: Deployment) -> Deployment:
    for kind, name in SETS:
        scores, labels = (BINARY if kind == "binary" else ROWS)[name]
        body = {"confidences" if kind == "binary" else "probabilities": np.asarray(scores).tolist()}
        body |= {"ids": [f"i{i}" for i in range(len(scores))]}
        if labels is not None:
            body["labels"] = np.asarray(labels).tolist()
        embedded.post(f"/v1/models/{kind}.{name}/predictions", body)
    return embedded


@pytest.mark.parametrize(("kind", "name"), SETS)
def test_a_map_or_the_reason_why_not(filled: Deployment, kind: str, name: str) -> None:
    client, url = filled.client, f"/v1/models/{kind}.{name}"
    posted = (
        {"confidences": [0.0, 0.3, 1.0]} if kind == "binary" else {"probabilities": EYE.tolist()}
    )
    for method, chosen in MAPS.items():
        asked = {"method": method}
        if kind == "rows" and "class" in chosen.scopes:
            asked["class"] = "1"
        answer = client.get(f"{url}/calibration-map", params=asked)
        if (chosen.solve_rows is not None or method == "spline") and answer.status_code == 422:
            [error] = answer.json()["errors"]
            assert (error["pointer"], error["rule"]) == ("/method", "few_units")
            assert "independent" in error["detail"]
            mapped = client.post(f"{url}/calibration-map/apply", params=asked, json=posted)
            assert mapped.status_code == 422 and name != "ample"
            continue
        assert answer.status_code == 200, (method, answer.text)
        found = answer.json()
        assert (found["parameters"] is None) == (found["reason"] is not None), method
        if name in NO_MAP and not (name == "one-class" and method in OF_ONE_CLASS):
            assert found["reason"] == NO_MAP[name], method
        mapped = client.post(f"{url}/calibration-map/apply", params=asked, json=posted)
        if found["parameters"] is None:
            assert found["detail"], method
            assert (mapped.status_code, mapped.json()["errors"][0]["rule"]) == (422, "no_map")
            assert found["reason"] in mapped.json()["detail"]
        else:
            assert mapped.status_code == 200, mapped.text
            values = np.array(mapped.json().get("probabilities") or mapped.json()["confidences"])
            assert ((values >= 0) & (values <= 1)).all()
            if found["scope"] == "full":
                assert values.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-12)
            proven = {"objective_before", "objective_after", "gradient_norm", "iterations"}
            if chosen.objective == "nll":
                assert proven <= set(found), (method, set(found))
                assert found["objective_after"] <= found["objective_before"] + 1e-12
    for objective in ("nll", "brier", "ece"):
        answer = client.get(
            f"{url}/temperature", params={"objective": objective, "include": "recommendation"}
        )
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["temperature"] is None) == (found["reason"] is not None)
        advice = found["recommendation"]
        assert advice["reason"] and (advice["action"] or is_explained(advice["evidence"]))
