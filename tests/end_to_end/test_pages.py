"""Pages in a browser, against a real service with keys: every page is read, every action is done by clicking."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from scipy.special import softmax

from calibrant.figures.numbers import plain_number
from tests.browser import Browser
from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually

pytestmark = pytest.mark.one_server
KEY = "a-key-of-the-administrator"
MODEL, DAYS, A_DAY, CHANGE = "triage", 24, 150, 16
# axe-core is neither a package of Python nor part of this one.
AXE = os.environ.get("AXE", "")
# The first operation of each method; returns how many.
OPEN_OPERATIONS = """(() => {
  const methods = ["get", "post", "put", "patch", "delete"];
  const opened = methods.map(each => document.querySelector(`.opblock-${each} .opblock-summary-control`));
  opened.forEach(each => each.click());
  return opened.length;
})()"""
UNNAMED = "[...document.querySelectorAll('.opblock :is(select, input, textarea)')].filter(each => !each.ariaLabel).length"
# Figures of the API that are shown.
DRAWN = """[...document.querySelectorAll("img.figure")].filter(each => each.naturalWidth)
  .map(each => each.src.split("/figures/")[1].split("?")[0]).sort()"""
UNKNOWN = ("/models/unknown-model", "/nothing-here")
BEARER = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A watched model whose probabilities become overconfident, with two sites and an open alarm."""
    keys = {"keys": [{"sha256": hashlib.sha256(KEY.encode()).hexdigest(), "name": "boss"}]}
    environment = {"CALIBRANT_KEYS": json.dumps(keys), "CALIBRANT_HOUSEKEEPING": "0.5"}
    with Deployment(tmp_path_factory.mktemp("pages"), **environment) as deployment:
        deployment.client.headers.update(BEARER)
        send_days(deployment)
        eventually(lambda: deployment.client.get("/v1/alarms").json()["alarms"])
        yield deployment


def send_days(deployment: Deployment) -> None:
    settings = {
        "task": "multiclass", "classes": ["calm", "urgent", "critical"], "pane": "P1D", "label_horizon": "P1D",
        "slices": {"site": ["A", "B"]},
    }  # fmt: skip
    assert deployment.client.put(f"/v1/models/{MODEL}", json=settings).status_code == 201
    rng = np.random.default_rng(5)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(DAYS):
        logits = rng.normal(0, 2, (A_DAY, 3))
        truth = softmax(logits / (3 if day >= CHANGE else 1), axis=1)
        at = today - timedelta(days=DAYS + 1 - day)
        body = {
            "logits": logits.tolist(),
            "labels": [int(rng.choice(3, p=row)) for row in truth],
            "ids": [f"d{day}-{i}" for i in range(A_DAY)],
            "event_times": [(at + timedelta(minutes=i)).isoformat() for i in range(A_DAY)],
            "slices": {"site": ["A" if i % 2 else "B" for i in range(A_DAY)]},
        }
        deployment.post(f"/v1/models/{MODEL}/predictions", body)


@pytest.fixture(scope="module")
def browser(served: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    import shutil

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed here")
    with Browser(program, tmp_path_factory.mktemp("profile")) as page:
        page.shape(1440, 900)
        page.open(f"http://127.0.0.1:{served.port}/models/{MODEL}")
        assert "Sign in" in page.run("document.title")
        page.fill("#key", KEY)
        page.follow("main button")
        yield page


def text_of(browser: Browser, selector: str = "main") -> str:
    found: str = browser.run(f"document.querySelector({json.dumps(selector)}).innerText")
    return found


def shows(browser: Browser, selector: str, text: str) -> bool:
    """Whether the page has this text there; False while it leads to another one."""
    try:
        return text in text_of(browser, selector)
    except AssertionError:
        return False


def shows_restart(browser: Browser, page: str, version: int) -> bool:
    """Whether the page of the model states that the evidence restarted with this version of the map."""
    browser.open(page)
    stated = browser.run("document.querySelector('#restart')?.innerText") or ""
    return f"The evidence restarted when map version {version} was promoted on" in stated


def test_signing_in_leads_back_to_the_page(browser: Browser) -> None:
    assert browser.run("location.pathname") == f"/models/{MODEL}", text_of(browser)
    assert browser.run("document.cookie") == ""
    shown = text_of(browser)
    assert "Calibration: Off" in shown
    assert "Alarm" in text_of(browser, ".title")
    assert browser.run("document.querySelector('#restart')") is None
    assert browser.run("document.querySelectorAll('.uplot canvas').length") == 3
    browser.run("document.querySelectorAll('img.figure').forEach(each => each.loading = 'eager')")
    eventually(
        lambda: set(browser.run(DRAWN)) >= {"drift", "metrics", "reliability", "temperature"}
    )


def test_every_action_is_done_by_clicking(browser: Browser, served: Deployment) -> None:
    browser.open(f"http://127.0.0.1:{served.port}/")
    browser.follow(f"a[href='/models/{MODEL}']")
    browser.fill("#alarms input[name=note]", "seen by <b>me</b>")
    browser.follow("#alarms button")
    assert "by boss: seen by <b>me</b>" in text_of(browser, "#alarms")

    browser.follow("#maps form.row button")
    assert "No correction (calibration map) has been fitted" not in text_of(browser, "#maps")
    browser.run("document.querySelector('#method').value = 'beta'")
    browser.follow("#maps form.row button")
    page = f"http://127.0.0.1:{served.port}/models/{MODEL}"
    for version, opened in ((1, "Promote"), (2, "Promote"), (1, "Roll back")):
        row = f"#maps tr:has(form[action$='/{version}/promote'])"
        assert opened in text_of(browser, f"{row} summary")
        browser.click(f"{row} summary")
        browser.fill(f"#reason-{version}", f"try {version}")
        if opened == "Promote" and version == 2:
            browser.click(f"{row} input[name=override]")
        browser.follow(f"{row} button")
        current = served.client.get(f"/v1/models/{MODEL}/maps/current").json()
        assert (current["version"], current["promotion"]["promoted_by"]) == (version, "boss")
        eventually(partial(shows_restart, browser, page, version))
    actions = [each["action"] for each in served.client.get("/v1/audit").json()["entries"]]
    for action, times in (("acknowledgeAlarm", 1), ("createMap", 2), ("promoteMap", 3)):
        assert actions.count(action) == times

    browser.follow("header a[href='/keys']")
    browser.fill("#name", "reader of one model")
    browser.follow("form[action='/keys'] button")
    secret = text_of(browser, "#secret")
    models = served.client.get("/v1/models", headers={"Authorization": f"Bearer {secret}"})
    assert models.status_code == 200
    browser.click("td details summary")
    browser.follow("td details button")
    rejected = served.client.get("/v1/models", headers={"Authorization": f"Bearer {secret}"})
    assert rejected.status_code == 401


def test_raters_and_cases_are_listed(browser: Browser, served: Deployment) -> None:
    rng = np.random.default_rng(2)
    probabilities = rng.dirichlet(np.ones(3), 120)
    body = {
        "probabilities": probabilities.tolist(),
        "labels": [rng.choice(3, 2, p=row).tolist() for row in probabilities],
        "cases": [f"scan-{i % 4}" for i in range(120)],
        "units": [f"scan-{i % 4}" for i in range(120)],
    }
    settings = {"task": "segmentation", "classes": ["ground", "liver", "tumour"], "unit": "patient"}
    assert served.client.put("/v1/models/scans", json=settings).status_code == 201
    served.post("/v1/models/scans/predictions", body)
    rows = served.client.get("/v1/models/scans/cases").json()["cases"]
    browser.open(f"http://127.0.0.1:{served.port}/models/scans/raters")
    shown = text_of(browser, "[aria-labelledby=cases-h] table")
    for row in rows:
        assert row["case"] in shown
        assert plain_number(row["ece"]["mean"]) in shown
    assert "No prediction was sent with an id" in text_of(browser)


def test_the_report_is_a_page(browser: Browser, served: Deployment) -> None:
    browser.open(f"http://127.0.0.1:{served.port}/models/{MODEL}")
    browser.follow("a[href$='/report']")
    assert MODEL in text_of(browser, "body")
    assert browser.run("document.querySelectorAll('svg, img').length") > 0


def test_a_report_is_archived_by_clicking(browser: Browser, served: Deployment) -> None:
    browser.open(f"http://127.0.0.1:{served.port}/models/{MODEL}")
    browser.fill("#report-note", "for the <i>committee</i>")
    browser.follow("#reports button")
    eventually(lambda: shows(browser, "#reports", "by boss. for the <i>committee</i>"))
    browser.follow("#reports a[href$='/reports/1']")
    assert "SHA-256 of the results" in text_of(browser, "body")
    (report,) = served.client.get(f"/v1/models/{MODEL}/reports").json()["reports"]
    assert report["results_sha256"] in text_of(browser, "body")


def test_a_search_finds_models_while_one_types(browser: Browser, served: Deployment) -> None:
    browser.open(f"http://127.0.0.1:{served.port}/")
    browser.fill("#q", "nothing-like-it")
    eventually(lambda: "No model has this name" in text_of(browser, "#models"))
    browser.fill("#q", "tri")
    eventually(lambda: MODEL in text_of(browser, "#models"))


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (1440, False),
        (390, True),
        pytest.param(1440, True, marks=pytest.mark.slow),
        pytest.param(390, False, marks=pytest.mark.slow),
    ],
)
def test_pages_look_right(
    browser: Browser, served: Deployment, tmp_path: Path, width: int, dark: bool
) -> None:
    for path in (
        "/",
        f"/models/{MODEL}?window=P28D&slice=site:A",
        f"/models/{MODEL}/raters",
        "/keys",
    ):
        browser.shape(width, 900, dark=dark)
        browser.open(f"http://127.0.0.1:{served.port}{path}")
        assert not browser.run("document.documentElement.scrollWidth > innerWidth"), path
        browser.screenshot(tmp_path / "page.png")
        pixels = matplotlib.image.imread(tmp_path / "page.png")[..., :3]
        ground = pixels.mean(axis=2)
        # A black figure on a light page, or a white one on a dark page, would be seen here.
        assert ((ground < 0.05).mean() < 0.05) if not dark else ((ground > 0.95).mean() < 0.05)
    blue = np.array([0x56, 0xB4, 0xE9] if dark else [0x00, 0x72, 0xB2]) / 255
    assert (np.abs(pixels - blue).max(axis=2) < 0.05).any()  # the sign at the head of each page
    browser.shape(1440, 900)


def test_the_list_fits_into_a_common_window(browser: Browser, served: Deployment) -> None:
    """The last column was cut off at 1,200 pixels, behind a scroll bar."""
    browser.open(f"http://127.0.0.1:{served.port}/")
    # Values as wide as they come.
    browser.run(
        """(() => {
          const row = document.querySelector(".models tbody tr");
          const texts = ["", null, "unknown", "no recent predictions", "0.089 ▲", null, "beyond the range", "12", "99.9 %",
            "in the last 15 minutes"];
          [...row.cells].forEach((cell, i) => { if (texts[i]) cell.innerHTML = texts[i]; });
          row.querySelector(".badge").textContent = "○ Being computed";
        })()"""
    )
    for width in (1440, 1340, 1280, 1200, 390):
        browser.shape(width, 900)
        assert browser.run(
            "(() => { const box = document.querySelector('.scroll'); return box.scrollWidth <= box.clientWidth; })()"
        ), width
    browser.shape(1440, 900)


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_of_the_api_follows_the_colours_of_the_system(
    browser: Browser, served: Deployment, dark: bool
) -> None:
    browser.shape(1440, 900, dark=dark)
    browser.open(f"http://127.0.0.1:{served.port}/docs")
    eventually(lambda: browser.run("document.querySelectorAll('.opblock').length") > 50)
    for place, name, is_light in (
        (":root", "backgroundColor", not dark),
        (".info .title", "color", dark),
    ):
        shown = browser.run(f"getComputedStyle(document.querySelector('{place}')).{name}")
        parts = [float(each) for each in shown[shown.index("(") + 1 : -1].split(",")]
        # The root of a light page is transparent: the window's white.
        luminance = 255.0 if parts[3:] == [0.0] else sum(parts[:3]) / 3
        assert (luminance > 128) == is_light, (place, shown)
    browser.shape(1440, 900)


@pytest.mark.skipif(not AXE, reason="AXE=FILE names axe.min.js of axe-core (CONTRIBUTING.md)")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_no_serious_violation(
    browser: Browser, served: Deployment, width: int, dark: bool
) -> None:
    script = Path(AXE).read_text("utf-8")
    query = (
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations"
        ".filter(each => ['serious', 'critical'].includes(each.impact))"
        ".map(each => [each.id, each.nodes.map(node => node.html)]))"
    )
    browser.shape(width, 900, dark=dark)
    paths = ("/", f"/models/{MODEL}", f"/models/{MODEL}/raters", f"/models/{MODEL}/report", "/keys")
    others = (
        f"/models/{MODEL}?slice=site:A",
        "/v1/problems",
        "/v1/problems/key-unknown",
        "/sign-in",
    )
    for path in (*paths, *others, *UNKNOWN):
        browser.open(f"http://127.0.0.1:{served.port}{path}")
        browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
        browser.run(f"{script}; 1")
        assert browser.run(query) == [], path
    browser.open(f"http://127.0.0.1:{served.port}/docs")
    eventually(lambda: browser.run("document.querySelectorAll('.opblock').length") > 50)
    browser.run(f"{script}; 1")
    assert browser.run(query) == []
    n = browser.run(OPEN_OPERATIONS)
    eventually(lambda: browser.run("document.querySelectorAll('.responses-inner').length") == n)
    eventually(lambda: browser.run(UNNAMED) == 0)
    assert browser.run(query) == []
    browser.run("document.querySelectorAll('.try-out__btn').forEach(each => each.click())")
    eventually(lambda: browser.run("document.querySelectorAll('.btn.execute').length") == n)
    eventually(lambda: browser.run(UNNAMED) == 0)
    assert browser.run(query) == []
    assert not browser.run("document.documentElement.scrollWidth > innerWidth")
    browser.complaints[:] = [
        each for each in browser.complaints if not any(path in each for path in UNKNOWN)
    ]
    browser.shape(1440, 900)


def test_reading_needs_no_script(browser: Browser, served: Deployment) -> None:
    browser.shape(1440, 900, scripts=False)
    browser.open(f"http://127.0.0.1:{served.port}/models/{MODEL}")
    browser.shape(1440, 900)
    assert "overconfident" in text_of(browser)
    assert "metrics?" in browser.run("document.querySelector('[data-series] img').src")
    assert browser.run("document.querySelectorAll('#slices-h ~ figure').length") == 1


def test_nothing_is_left_in_the_console(browser: Browser) -> None:
    assert browser.complaints == []
