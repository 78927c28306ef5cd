"""Reads: queries, ETags, waiting, what the workers are asked."""

import asyncio
import json

import numpy as np
import pytest

import calibrant as cal
from calibrant.raters.staple import staple
from calibrant.segmentation.training_loss import l1_ace_loss
from calibrant_server.workers.queries.ask import UnknownQueryError
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
M = "/v1/models/digits"
READS = (
    *("metrics", "reliability", "roc", "temperature", "calibration-map", "drift", "stability"),
    *(
        "cases",
        "uncertainty",
        "confidence-histogram",
        "disagreement",
        "label-distribution",
        "decision-curve",
        "raters",
    ),
)


@pytest.fixture
async def digits(client):
    await client.post(f"{M}/predictions", json=PREDICTIONS)
    return client


@pytest.mark.parametrize("read", READS)
async def test_answers_carry_an_etag_and_are_not_computed_again(digits, inbox, read):
    first = await digits.get(f"{M}/{read}")
    assert first.status_code == 200, first.text
    etag = first.headers["etag"]
    assert etag.startswith('"') and first.headers["cache-control"] == "no-cache"
    asked = len(inbox.asked)
    again = await digits.get(f"{M}/{read}", headers={"If-None-Match": f'"x", {etag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert len(inbox.asked) == asked
    inbox.version += 1
    changed = await digits.get(f"{M}/{read}", headers={"If-None-Match": etag})
    assert changed.status_code == 200 and changed.headers["etag"] != etag


async def test_a_result_that_workers_of_another_version_do_not_compute_comes_after_the_upgrade(
    digits, inbox
):
    inbox.failing["metrics"] = UnknownQueryError("there is no result kind metrics")
    answer = await digits.get(f"{M}/metrics")
    assert "another version" in problem(answer, 503, "answer-late")["detail"]
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("read", READS)
async def test_every_read_knows_its_parameters(digits, read):
    wrong = await digits.get(f"{M}/{read}", params={"bin": "10"})
    [error] = problem(wrong, 422, "invalid-query")["errors"]
    assert (error["pointer"], error["rule"]) == ("/bin", "unknown_parameter")
    twice = await digits.get(f"{M}/{read}?raters=mean&raters=pooled")
    assert problem(twice, 422, "invalid-query")["errors"]
    unknown = problem(await digits.get(f"/v1/models/digit/{read}"), 404, "model-unknown")
    assert unknown["detail"] == "There is no model 'digit'. The nearest name is digits."


async def test_queries_differ_in_their_etag(digits, inbox):
    inbox.held = ["site:A"]
    urls = [
        "metrics",
        "metrics?bins=10",
        "metrics?metrics=ece",
        "metrics?slice=site:A",
        "reliability",
    ]
    tags = {(await digits.get(f"{M}/{url}")).headers["etag"] for url in urls}
    tags.add((await digits.get(f"{M}/reliability?format=svg")).headers["etag"])
    assert len(tags) == len(urls) + 1


async def test_the_workers_are_asked_for_what_the_query_says(digits, inbox):
    inbox.held = ["site:A"]
    await digits.get(
        f"{M}/metrics?metrics=ece,brier&bins=10&raters=mean&slice=site:A"
        "&from=2026-01-01T00:30:00Z&to=2026-01-02T00:30:00%2B01:00"
    )
    kind, key, params, window, slice_ = inbox.asked[-1]
    assert (kind, key, slice_) == ("metrics", "default/digits", "site:A")
    assert params["metrics"] == "ece,brier"
    assert (params["bins"], params["raters"], params["scope"]) == (10, "mean", "top_label")
    assert window.to_dict() == {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}


BAD_QUERIES = {
    "metrics?metrics=ecce": ("/metrics", "ece"),
    "metrics?metrics=": ("/metrics", "without a value"),
    "metrics?scope=": ("/scope", "without a value"),
    "metrics?from_=2026-01-01T00:00:00Z": ("/from_", "from, "),
    "metrics?ci=0.4": ("/ci", "0.5"),
    "metrics?from=2016-12-31T23:59:60Z": ("/from", "leap second"),
    "drift?scop=score": ("/scop", "expected one of "),
    "metrics?a/b~c=1": ("/a~1b~0c", "expected one of "),
    "metrics?bins=7": ("/bins", "8, 9, 10"),
    "metrics?bins=0": ("/bins", "1"),
    "metrics?bins=ten": ("/bins", "integer"),
    "metrics?bins=9&scope=class:1": ("/bins", "8, 10"),
    "metrics?binning=equal": ("/binning", "equal_width"),
    "metrics?edges=left": ("/edges", "metrics=ece(edges=...)"),
    "metrics?metrics=ece(edges=both)": ("/metrics", "right"),
    "reliability?edges=both": ("/edges", "right"),
    "metrics?raters=all": ("/raters", "pooled"),
    "metrics?scope=bottom": ("/scope", "top_label"),
    "metrics?scope=positive": ("/scope", "top_label"),
    "metrics?scope=class:9": ("/scope", "0 to 2"),
    "metrics?ci=1.5": ("/ci", "1"),
    "metrics?ci=nan": ("/ci", ""),
    "metrics?min_count=5": ("/min_count", "metrics=ece(min_count=...)"),
    "metrics?metrics=ece(min_count=-1)": ("/metrics", "Received min_count=-1; expected a value in"),
    "metrics?metrics=MR-ECE": ("/metrics", "the slug is ece with raters=pooled"),
    "metrics?metrics=lp_ece(power=3)": ("/metrics", "it takes ties, order"),
    "metrics?metrics=ece(scope=class:9)": ("/scope", "0 to 2"),
    "metrics?metrics=ece(bins=7)": ("/bins", "8, 9, 10"),
    "metrics?metrics=brier,nll&bins=10": ("/bins", "they take raters"),
    "metrics?metrics=ece&binning=soft": (
        "/binning",
        "Received binning=soft, which none of the requested metrics takes",
    ),
    "metrics?order=3": ("/order", "metrics=lp_ece(order=...)"),
    "metrics?last=3": ("/last", "window=PT24H"),
    "metrics?against_model=other": ("/against_model", "against=model:ID"),
    "metrics?against=other": ("/against", "baseline"),
    "metrics?against=window:7d": ("/against", "window"),
    "metrics?against=window:P": ("/against", "window"),
    "metrics?against=window:PP": ("/against", "P7D"),
    "metrics?against=window:P7D": ("/against", "Send `window` or `from`"),
    "metrics?against=baseline:b": ("/against", "known: none"),
    "metrics?against=reference": ("/against", "the alarm of this slice has none"),
    "reliability?min_count=-1": ("/min_count", "0"),
    "reliability?min_count=inf": ("/min_count", ""),
    "temperature?include=bias": ("/include", "recommendation, heldout, curve"),
    "metrics?from=yesterday": ("/from", "RFC 3339"),
    "metrics?from=1767225600": ("/from", "RFC 3339"),
    "metrics?from=2026-01-01T00:00:00": ("/from", "offset"),
    "metrics?from=2026-01-01T00:00:00+01:00": ("/from", "%2B"),
    "metrics?from=2026-13-01T00:00:00Z": ("/from", "RFC 3339"),
    "metrics?window=7y": ("/window", "P7D"),
    "metrics?window=P1M": ("/window", "P7D"),
    "metrics?window=PT0S": ("/window", ""),
    "metrics?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": ("/from", "before"),
    "metrics?from=2026-01-02T00:00:00Z&window=P1D": ("/from", "one of"),
    "metrics?slice=site": ("/slice", "site:A"),
    "temperature?objective=acc": ("/objective", "nll"),
    "calibration-map?method=magic": ("/method", "isotonic"),
    "calibration-map?class=9": ("/class", "0 to 2"),
    "calibration-map?class=1": ("/class", "temperature does not map one class alone"),
    "calibration-map?class=1&method=vector": ("/class", "isotonic"),
    "reliability?format=gif": ("/format", "svg"),
    "stability?metric=ecce": ("/metric", "ece"),
    "raters?metric=ecce": ("/metric", "ece"),
    "raters?clock=sealed": ("/clock", "expected one of "),
    "raters?raters=mean": ("/raters", "expected one of "),
    "raters?bins=7": ("/bins", "8, 9, 10"),
    "stability?subsets=random": ("/subsets", "nested"),
    "stability?source=rows": ("/source", "sample"),
    "stability?metric=kde_ece(leave=all)": ("/metric", "instance"),
    "stability?metric=kde_ece&leave=label": ("/leave", "metric=kde_ece(leave=...)"),
    "stability?metric=ece,mce": ("/metric", "expected one"),
    "stability?bins=7": ("/bins", "8, 9, 10"),
    "cases?metric=ml1_ece(membership=firm)": ("/metric", "soft"),
    "cases?membership=soft": ("/membership", "metric=ml1_ece(membership=...)"),
    "cases?metric=ece": ("/metric", "Expected one of ml1_ece"),
    "cases?sensitivity=true": ("/sensitivity", "include=sensitivity"),
    "calibration-map?centred=true": ("/centred", "isotonic(centred=true)"),
    "calibration-map?method=dirichlet(regularisation=-1)": (
        "/method",
        "Received regularisation=-1; expected a value in",
    ),
    "calibration-map?method=platt(centred=true)": ("/method", "it takes none"),
    "cases?metric=ml1_ece(average=micro)": ("/metric", "without `average`"),
    "cases?figure=pie": ("/figure", "boxes"),
    "cases?bins=101": ("/bins", "100"),
    "cases?figure=histogram(class=0)": ("/figure", "background=in"),
    "cases?figure=case(class=9)&case=scan-1": ("/figure", "0 to 2"),
    "cases?figure=boxes(class=1)": ("/figure", "it takes none"),
    "cases?figure=histogram(frequency_bins=101)": ("/figure", "100"),
    "cases?figure=histogram(frequency_bins)": ("/figure", "expected name=value"),
    "cases?class=1": ("/class", "figure=histogram(class=...)"),
    "cases?frequency_bins=20": ("/frequency_bins", "figure=histogram(frequency_bins=...)"),
    "cases?limit=0": ("/limit", "1"),
    "reliability?bins=7": ("/bins", "8, 9, 10"),
}


@pytest.mark.parametrize("query", BAD_QUERIES)
async def test_bad_queries_name_the_parameter_and_what_would_do(digits, inbox, query):
    pointer, said = BAD_QUERIES[query]
    body = problem(await digits.get(f"{M}/{query}"), 422, "invalid-query")
    assert body["errors"][0]["pointer"] == pointer
    assert said in body["errors"][0]["detail"]
    assert not inbox.asked


async def test_classes_may_be_named(client, inbox):
    await client.put("/v1/models/animals", json={"classes": ["cat", "dog", "owl"]})
    assert (await client.get("/v1/models/animals/metrics?scope=class:dog")).status_code == 200
    assert inbox.asked[-1][2]["scope"] == "class:1"
    assert (
        await client.get("/v1/models/animals/calibration-map?class=owl&method=beta")
    ).status_code == 200
    assert inbox.asked[-1][2]["class"] == "2"


async def test_a_long_poll_answers_when_the_state_changes(digits, inbox):
    etag = (await digits.get(f"{M}/metrics")).headers["etag"]
    headers = {"If-None-Match": etag, "Prefer": "wait=60"}
    waiting = asyncio.create_task(digits.get(f"{M}/metrics", headers=headers))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    inbox.version += 1
    answer = await waiting
    assert answer.status_code == 200 and answer.headers["preference-applied"] == "wait=60"


async def test_a_long_poll_ends_in_304(digits):
    etag = (await digits.get(f"{M}/metrics")).headers["etag"]
    headers = {"If-None-Match": etag, "Prefer": "wait=1"}
    started = asyncio.get_running_loop().time()
    answer = await digits.get(f"{M}/metrics", headers=headers)
    assert answer.status_code == 304
    assert asyncio.get_running_loop().time() - started > 0.9


async def test_what_cannot_be_produced_is_not_acceptable(digits):
    for read in READS:
        answer = await digits.get(f"{M}/{read}", headers={"Accept": "text/turtle"})
        problem(answer, 406, "not-acceptable")


async def test_a_map_is_applied_to_a_posted_batch(digits, inbox):
    inbox.answers["calibration_map"] = {
        "method": "temperature",
        "scope": "full",
        "parameters": {"temperature": 1.0},
        "digest": "d",
        "n": 2,
    }
    body = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.1, 0.1]]}
    url = f"{M}/calibration-map/apply"
    rejected = await digits.post(url, json=body)
    assert problem(rejected, 422, "invalid-input")["errors"][0]["pointer"] == "/probabilities/1"
    answer = (await digits.post(url, params={"partial": "true"}, json=body)).json()
    assert (answer["accepted"], answer["rejected"], answer["digest"]) == (1, 1, "d")
    np.testing.assert_allclose(answer["probabilities"], [[0.7, 0.2, 0.1]])


async def test_no_map_is_no_probabilities(digits, inbox):
    inbox.answers["calibration_map"] = {"method": "platt", "parameters": None, "reason": "no_data"}
    body = {"probabilities": [[0.7, 0.2, 0.1]]}
    answer = await digits.post(f"{M}/calibration-map/apply", json=body)
    assert "no_data" in problem(answer, 422, "invalid-query")["detail"]


async def test_one_batch_is_scored_and_nothing_is_stored(client, inbox):
    answer = await client.post("/v1/score", params={"metrics": "ece"}, json=PREDICTIONS)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["n_predictions"], answer.json()["n_ratings"]) == (2, 4)
    assert not inbox.deliveries
    unlabelled = {"probabilities": PREDICTIONS["probabilities"]}
    found = problem(await client.post("/v1/score", json=unlabelled), 422, "invalid-input")
    assert found["errors"][0]["rule"] == "labels_required"
    unknown = await client.post("/v1/score", params={"metrics": "x"}, json=PREDICTIONS)
    problem(unknown, 422, "invalid-query")


OF_SITE = "expected a value of site: A, B, OLD."
UNKNOWN_SLICES = {
    "site:C": OF_SITE,
    "site:OLF": "expected a value of site: OLD, A, B.",
    "device:any": "expected a value of device: it has none.",
    "sites:A": "expected a key of the model: site, device.",
}
SLICED = (
    *("metrics", "drift", "drift/history", "reliability", "temperature", "cases", "raters"),
    *("metrics?every=P1D", "reliability?format=svg", "temperature?include=recommendation"),
)


@pytest.fixture
async def sliced(client, inbox):
    declared = {"classes": 3, "slices": {"site": ["A", "B"], "device": None}}
    await client.put("/v1/models/sliced", json=declared)
    inbox.held = ["", "site:OLD"]
    return client


@pytest.mark.parametrize("read", SLICED)
async def test_a_slice_that_is_neither_declared_nor_held_is_rejected_by_every_read(sliced, read):
    joint = "&" if "?" in read else "?"
    for name, expected in UNKNOWN_SLICES.items():
        answer = await sliced.get(f"/v1/models/sliced/{read}{joint}slice={name}")
        error = problem(answer, 422, "invalid-query")["errors"][0]
        assert (error["pointer"], error["rule"]) == ("/slice", "undeclared_slice")
        assert error["detail"] == f"Received slice {name!r}; {expected}"


async def test_a_slice_that_is_declared_or_held_is_read(sliced):
    for name in ("site:A", "site:OLD"):
        answer = await sliced.get("/v1/models/sliced/metrics", params={"slice": name})
        assert answer.status_code == 200, name
    assert (await sliced.get("/v1/models/sliced/metrics?by=device")).status_code == 200
    error = problem(await sliced.get("/v1/models/sliced/metrics?by=sit"), 422, "invalid-query")
    assert error["errors"][0]["detail"] == "Received slice key 'sit'; expected a key of the model: site, device."  # fmt: skip


async def test_a_model_without_slices_has_none_to_read(digits):
    error = problem(await digits.get(f"{M}/metrics?slice=site:A"), 422, "invalid-query")
    assert error["errors"][0]["detail"] == "Received slice 'site:A'; expected a key of the model: it has none."  # fmt: skip


@pytest.mark.parametrize(
    "accept", [[""], ["text/csv", "application/json"], ["application/json;q=0.1"]]
)
async def test_every_accept_header_counts_and_an_empty_one_takes_anything(digits, accept):
    answer = await digits.get(f"{M}/metrics", headers=[("Accept", each) for each in accept])
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "time", ["2026-01-01T00:00:00.123456789Z", "2026-01-01 00:00:00Z", "2026-01-01t00:00:00z"]
)
async def test_timestamps_as_rfc_3339_allows_them(digits, time):
    assert (await digits.get(f"{M}/metrics", params={"from": time})).status_code == 200


RATED = {
    "probabilities": [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]],
    "labels": [[0, 1], [1, 1], None],
    "raters": [["ann", "bob"], ["ann", None], None],
}


async def test_named_raters_are_scored_one_by_one(client):
    query = {"metrics": "accuracy,ece", "bins": 10}
    found = (await client.post("/v1/score", params=query, json=RATED)).json()["baselines"]
    accuracy = found["metrics"]["accuracy"]
    assert accuracy["by_rater"] == {"ann": {"value": 1.0, "n": 2}, "bob": {"value": 0.0, "n": 1}}
    assert accuracy["mean_of_raters"] == 0.5
    assert accuracy["policies"]["pooled"] == 0.75
    assert found["metrics"]["ece"]["by_rater"]["ann"]["value"] == pytest.approx(0.15)
    assert (found["disagreement"], found["n_majority_ties"]) == (0.5, 1)
    rows = zip(RATED["probabilities"], RATED["labels"], RATED["raters"], strict=True)
    lines = "\n".join(
        json.dumps({"probability": p, "label": label} | ({} if names is None else {"rater": names}))
        for p, label, names in rows
    )
    headers = {"content-type": "application/x-ndjson"}
    again = await client.post("/v1/score", params=query, content=lines, headers=headers)
    assert again.json()["baselines"] == found
    bad = RATED | {"labels": [[0, 1], [1, 7], None]}
    partial = await client.post("/v1/score", params=query | {"partial": "true"}, json=bad)
    good = partial.json()["baselines"]["metrics"]["accuracy"]["by_rater"]
    assert good == {"ann": {"value": 1.0, "n": 1}, "bob": {"value": 0.0, "n": 1}}
    unnamed = await client.post("/v1/score", params=query, json=RATED | {"raters": None})
    assert unnamed.status_code == 200
    assert "baselines" not in unnamed.json()


@pytest.mark.parametrize(
    ("change", "pointer", "rule"),
    [
        ({"raters": [["ann"], ["ann", None], None]}, "/raters/0", "length"),
        ({"raters": [["ann", "ann"], None, None]}, "/raters/0", "repeated_rater"),
        ({"raters": [["a\tb", "c"], None, None]}, "/raters/0", "name"),
        ({"raters": [["a", "b"], ["a", "b"]]}, "/raters", "length"),
        ({"raters": [["a", "b"], ["a", "b"], ["a"]]}, "/raters/2", "length"),
        ({"raters": "ann"}, "/raters", "list"),
        ({"labels": None, "label_counts": [[1, 1], [0, 2], [0, 0]]}, "/raters", "labels_required"),
        ({"rater": ["ann"]}, "/rater", "unknown_field"),
    ],
)
async def test_raters_who_fit_no_rating_are_rejected(client, change, pointer, rule):
    rejected = await client.post("/v1/score", json=RATED | change)
    violation = problem(rejected, 422, "invalid-input")["errors"][0]
    assert (violation["pointer"], violation["rule"]) == (pointer, rule), violation


async def test_who_rated_is_asked_of_scores_alone(client):
    rejected = await client.post(f"{M}/predictions", json=RATED)
    assert problem(rejected, 422, "invalid-input")["errors"][0]["pointer"] == "/raters"


SCANNED = PREDICTIONS | {"cases": ["a", "b"]}


async def test_further_answers_are_included(client):
    """Unions of classes too."""
    options = {"composites": {"whole": [1, 2], "core": [2]}}
    url = "/v1/score?metrics=ml1_ece&include=cases,roc&binning=spline"
    found = (await client.post(url, json=SCANNED | {"options": options})).json()
    assert found["cases"]["classes"] == ["whole", "core"] == found["metrics"]["ml1_ece"]["classes"]
    assert found["cases"]["membership"] == "spline"
    assert "auc" in found["roc"] and "stability" not in found


async def test_values_of_other_libraries_are_included(client):
    """Those of the library, of one peer or of all; rows that peers do not take leave a reason."""
    single = PREDICTIONS | {"labels": [0, 1]}
    p, labels = single["probabilities"], single["labels"]
    url = "/v1/score?metrics=ece&bins=10&include=compat"
    found = (await client.post(url, json=single)).json()["compat"]
    assert found == cal.compat(p, labels, bins=10)
    one = single | {"options": {"compat": "relplot"}}
    assert (await client.post(url, json=one)).json()["compat"] == {"relplot": found["relplot"]}
    rejected = await client.post(url, json=single | {"options": {"compat": "torch"}})
    assert problem(rejected, 422, "invalid-input")["errors"][0]["pointer"] == "/options/compat"
    several = (await client.post(url, json=PREDICTIONS)).json()["compat"]
    assert several["reason"] == "several_ratings"


async def test_training_losses_and_their_gradients_are_included(client):
    """hL1-ACE and sL1-ACE, and the weighted sum with Dice and cross-entropy: those of the library."""
    options = {"loss_weights": {"ace": 2}, "gradients": "probabilities", "membership": "soft"}
    url = "/v1/score?metrics=ece&bins=20&include=losses"
    found = (await client.post(url, json=SCANNED | {"options": options})).json()["losses"]
    p, y = np.array(SCANNED["probabilities"]), np.array([[1, 0, 0], [0, 2 / 3, 1 / 3]])
    losses = [l1_ace_loss(p[i], y[i], 20) for i in (slice(1), slice(1, None))]
    value, slopes = np.mean([each.value for each in losses]), [each.gradient / 2 for each in losses]
    assert found["sl1_ace"] == pytest.approx(value)
    assert found["gradients"]["sl1_ace"] == pytest.approx(np.concatenate(slopes))
    assert found["weighted_sum"] == pytest.approx(
        2 * value + found["dice"] + found["cross_entropy"]
    )
    plain = (await client.post(url, json=SCANNED)).json()["losses"]
    assert plain["membership"] == "hard" and "gradients" not in plain


async def test_losses_of_more_cases_than_can_be_computed_are_rejected(client):
    """Each case and class takes about as long as a thousand bins."""
    n, url = 11, "/v1/score?metrics=ece&include=losses&bins="
    rows = {"probabilities": [[0.5, 0.5]] * n, "labels": [0] * n}
    many = rows | {"cases": [f"c{i}" for i in range(n)]}
    assert (await client.post(f"{url}1000", json=many)).json()["losses"]["n_cases"] == n
    n = 10_001
    many = {
        "probabilities": [[0.5, 0.5]] * n,
        "labels": [0] * n,
        "cases": [f"c{i}" for i in range(n)],
    }
    rejected = problem(await client.post(f"{url}15", json=many), 422, "invalid-query")
    assert rejected["errors"][0]["pointer"] == "/cases" and "at most 10000" in rejected["detail"]


async def test_a_consensus_needs_named_raters(client):
    """Of three or more who rated every pixel of a case."""
    rated = SCANNED | {"labels": [[0, 1, 0], [1, 1, 2]], "cases": ["a", "a"]}
    url = "/v1/score?metrics=ece&include=consensus"
    plain = (await client.post(url, json=rated)).json()["consensus"]
    assert plain["reason"] == "raters_not_named"
    names = {"raters": [["ann", "bob", "eve"]] * 2}
    found = (await client.post(url, json=rated | names)).json()["consensus"]
    (case,) = found["cases"]
    assert (case["raters"], found["n_cases_counted"]) == (["ann", "bob", "eve"], 1)
    first = case["classes"][0]
    exact = staple([[0, 1, 0], [1, 1, 0]])
    assert first["sensitivity"]["bob"] == pytest.approx(exact.sensitivity[1])
    assert set(found["mean"]) == {"staple", "majority", "pooled"}


async def test_options_of_rows_are_in_the_body(client):
    """For every metric that takes them, unless its brackets set another; in NDJSON in a first line."""
    url = "/v1/score?metrics=lp_ece,lp_ece(order=3),ece"
    options = {"order": 1.0, "ties": "split"}
    found = (await client.post(url, json=PREDICTIONS | {"options": options})).json()["metrics"]
    assert found["lp_ece"]["value"] == pytest.approx(found["ece"]["value"])
    assert found["lp_ece(order=3)"]["order"] == 3
    rows = zip(PREDICTIONS["probabilities"], PREDICTIONS["labels"], strict=True)
    lines = [{"options": options}, *({"probabilities": p, "label": y} for p, y in rows)]
    body = "\n".join(json.dumps(line) for line in lines)
    answer = await client.post(url, content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.json()["metrics"] == found, answer.text


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("include=case", "/include"),
        ("include=temperature_surface", "/classes"),
        ("ties=split", "/ties"),
        ("composites=whole:1", "/composites"),
        ("include=cases&case=b", "/case"),
    ],
)
async def test_what_cannot_be_included_is_rejected(client, query, pointer):
    answer = await client.post(f"/v1/score?{query}", json=SCANNED)
    assert problem(answer, 422, "invalid-query")["errors"][0]["pointer"] == pointer


async def test_values_of_instances_are_costly_and_so_included_on_request(client):
    url = "/v1/score?metrics=dist_ce,ece"
    plain = (await client.post(url, json=RATED)).json()["metrics"]
    found = (await client.post(f"{url}&include=instances", json=RATED)).json()["metrics"]
    assert "instances" not in plain["dist_ce"] and "instances" not in found["ece"]
    assert sum(found["dist_ce"]["instances"]) / len(found["dist_ce"]["instances"]) == pytest.approx(
        found["dist_ce"]["value"]
    )


@pytest.mark.parametrize(
    ("query", "options", "pointer"),
    [
        ("include=stability", {"metric": "x"}, "/options/metric"),
        ("", {"composites": "whole:1+2"}, "/options/composites"),
        ("", {"composites": {"a b": [1]}}, "/options/composites/a b"),
        ("", {"composites": {"a": ["x"]}}, "/options/composites/a/0"),
        ("include=cases", {"composites": {"a": [7]}}, "/options/composites/a"),
        ("include=cases", {"case": "nobody"}, "/options/case"),
        ("include=losses", {"loss_weights": {"focal": 1}}, "/options/loss_weights/focal"),
        ("include=losses", {"loss_weights": {"ace": -1}}, "/options/loss_weights/ace"),
        ("include=losses", {"gradients": "pixels"}, "/options/gradients"),
        ("include=losses", {"membership": "spline"}, "/options/membership"),
        ("", {"ties": "never"}, "/options/ties"),
        ("", {"order": 0.5}, "/options/order"),
        ("", {"power": 2}, "/options/power"),
        ("", ["ties"], "/options"),
    ],
)
async def test_options_that_cannot_be_read_are_rejected(client, query, options, pointer):
    answer = await client.post(f"/v1/score?{query}", json=SCANNED | {"options": options})
    violation = problem(answer, 422, "invalid-input")["errors"][0]
    assert violation["pointer"].startswith(pointer), violation
