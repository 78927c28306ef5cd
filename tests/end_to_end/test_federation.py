"""Two sites and a centre over HTTP: sums equal those of all rows, no name crosses the wire, and a kill counts nothing twice."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.hashing import hash_names
from calibrant.core.pane import Pane
from tests.cli.command import runner
from tests.client.federated import same_sums, unit_hashes
from tests.end_to_end.deployment import ROOT
from tests.end_to_end.recording_proxy import RecordingProxy

MODEL = {"task": "multiclass", "classes": 3, "pane": "PT1H"}
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
SITES = ("north", "south")
METRICS = "ece,mce,classwise_ece,accuracy,nll,brier,ks"


def rows(site, day):
    """Rows of a day; every third has no label yet."""
    rng = np.random.default_rng([len(site) + ord(site[0]), day])
    n = 60
    name = f"{site}.day{day}."
    hours = rng.integers(0, 24, n).tolist()
    return {
        "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
        "labels": [None if i % 3 == 0 else int(each) for i, each in enumerate(rng.integers(0, 3, n))],
        "ids": [f"{name}image.{i}" for i in range(n)],
        "units": [f"Lee.Ann.{name}{i}" for i in range(n)],
        "cases": [f"case.{name}{i}" for i in range(n)],
        "event_times": [f"{TODAY - timedelta(days=day) + timedelta(hours=each):%Y-%m-%dT%H:00:00Z}" for each in hours],
    }  # fmt: skip


def post_hours(deployment, model, found):
    """Post the rows hour by hour: a batch may touch only some panes."""
    for hour in sorted(set(found["event_times"])):
        some = [i for i, each in enumerate(found["event_times"]) if each == hour]
        body = {name: [column[i] for i in some] for name, column in found.items()}
        deployment.post(f"/v1/models/{model}/predictions", body)


def post_labels(deployment, model, found, every=3, label=1):
    ids = found["ids"][::every]
    deployment.post(f"/v1/models/{model}/labels", {"ids": ids, "labels": [label] * len(ids)})


def total(deployment, model):
    """Return the sum of the panes of all rows, as exported."""
    spec = cal.PaneSpec("multiclass", 3)
    lines = map(json.loads, deployment.client.get(f"/v1/models/{model}/export").text.splitlines())
    panes = []
    for line in lines:
        if line["type"] == "pane" and line["slice"] == "":
            parts = {
                k: base64.b64decode(v)
                for k, v in line["packed"].items()
                if not k.startswith("src:")
            }
            panes.append(Pane.from_parts(spec, parts))
    return sum(panes)


@pytest.fixture
def sites(embedded, tmp_path):
    """The services of two sites, which are models of one service; the centre, and one model with all rows."""
    names = ("centre", "direct", *SITES)
    for name in names:
        embedded.client.delete(f"/v1/models/fed-{name}")
        # A declaration while the deletion is under way waits for it.
        assert embedded.client.put(f"/v1/models/fed-{name}", json=MODEL).status_code in (200, 201)
    for site in SITES:
        contract = {
            "site": site,
            "models": [
                {"model": f"fed-{site}", "to": "fed-centre", "minimum": 20, "after": "PT6H"}
            ],
        }
        (tmp_path / f"{site}.json").write_text(json.dumps(contract))
    return tmp_path


def arguments(embedded, folder, site, centre):
    url = f"http://127.0.0.1:{embedded.port}"
    return [
        "federate", str(folder / f"{site}.json"), "--site", url, "--centre", centre, "--ledger", str(folder / f"{site}.ledger"),
        "--once",
    ]  # fmt: skip


def test_the_centre_equals_all_rows_and_no_name_crosses_the_wire(embedded, sites, capsys):
    run = runner(capsys)
    sent = {(site, day): rows(site, day) for site in SITES for day in (4, 3)}
    for (site, _), each in sent.items():
        post_hours(embedded, f"fed-{site}", each)
        post_hours(embedded, "fed-direct", each)

    def federate(centre):
        for site in SITES:
            found = run(*arguments(embedded, sites, site, centre))
            assert found.code == 0, found.error + found.out

    def compare():
        # The batches in the queue of the centre are merged before this one.
        embedded.post("/v1/models/fed-centre/labels", {"ids": ["nobody"], "labels": [0]})
        expected = total(embedded, "fed-direct")
        # Delays of labels are measured when they arrive, which is later at the second of two models.
        same_sums(total(embedded, "fed-centre"), expected, but=["delays"])
        query = {"metrics": METRICS, "from": f"{TODAY - timedelta(days=4):%Y-%m-%dT%H:00:00Z}",
                 "to": f"{TODAY - timedelta(days=2):%Y-%m-%dT%H:00:00Z}"}  # fmt: skip
        found, direct = (
            embedded.get(f"/v1/models/fed-{each}/metrics", **query) for each in ("centre", "direct")
        )
        assert found["n_labelled"] == direct["n_labelled"] > 0
        for slug, each in direct["metrics"].items():
            assert found["metrics"][slug]["value"] == pytest.approx(each["value"], rel=1e-12)

    with RecordingProxy(f"http://127.0.0.1:{embedded.port}") as wire:
        federate(wire.url)
        compare()
        # Each day is sent once: a round without new days sends nothing.
        assert len(wire.posts) == 4
        for (site, _), each in sent.items():
            post_labels(embedded, f"fed-{site}", each)
        federate(wire.url)
        assert len(wire.posts) == 4
        compare()
    hashes, raw = b"", bytes(wire.sent)
    for body in wire.posts:
        (update,) = json.loads(body)["histograms"]
        pane = Pane.from_bytes(base64.b64decode(update["packed"]))
        assert not {"sample", "cases", "digest"} & pane.parts().keys()
        raw += b"".join(pane.parts().values())
        hashes += unit_hashes(pane).tobytes()
    for each in sent.values():
        for name in (*each["ids"], *each["units"], *each["cases"]):
            assert name.encode() not in raw
            assert hash_names([name]).tobytes() not in hashes
    south = embedded.get("/v1/models/fed-centre/metrics", metrics="ece", slice="site:south")
    assert south["n_predictions"] == 120


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_forwarder_that_is_killed_around_a_request_counts_once(embedded, sites, when):
    sent = [rows("north", day) for day in (4, 3)]
    for each in sent:
        post_hours(embedded, "fed-north", each)
    with RecordingProxy(f"http://127.0.0.1:{embedded.port}") as wire:
        command = [
            sys.executable,
            "-c",
            "from calibrant.cli import main; main()",
            *arguments(embedded, sites, "north", wire.url),
        ]
        running = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        wire.kills = (running.pid, when)
        out, _ = running.communicate()
        assert running.returncode == -signal.SIGKILL, out.decode()
        again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert again.returncode == 0, again.stderr
    embedded.post("/v1/models/fed-centre/labels", {"ids": ["nobody"], "labels": [0]})
    same_sums(total(embedded, "fed-centre"), total(embedded, "fed-north"))
