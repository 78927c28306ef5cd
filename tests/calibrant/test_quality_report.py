"""The report for a quality committee: complete, self-contained, escaped, without exponents."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import calibrant as cal
from calibrant.figures.numbers import interval_text, percent, plain_number
from calibrant.figures.over_time import over_time_caption
from calibrant.quality_report import LeftOut, ReportContents, Subgroup, page
from calibrant.quality_report.decisions import flagged_note, flagged_sentences
from calibrant.quality_report.figures import figures
from calibrant.quality_report.readers import reader_rows
from calibrant.quality_report.service_rows import alarm_rows, loss_rows
from calibrant.quality_report.smallest_errors import detectable_errors, places_of
from calibrant.quality_report.verdicts import assessment, main_verdict, subgroup_sentence
from tests.service.figure_marks import Figure

HOSTILE = "<script>alert(1)</script>$\\frac{1}{0}$\"'&{{ 7 * 7 }}"


class Reader(HTMLParser):
    """Elements, texts and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._is_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._is_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._is_style = False
        self.text += " "

    def handle_data(self, data: str) -> None:
        self.text += "" if self._is_style else data


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    rng = np.random.default_rng(1)
    p = rng.dirichlet([1, 1, 1], 400)
    labels = (p.cumsum(axis=1) < rng.random((400, 1))).sum(axis=1)
    report = cal.evaluate(p, labels, ["ece", "brier", "dice"], units=np.arange(400) // 4)
    return ReportContents(
        title=HOSTILE,
        metrics=report.to_dict(),
        subject=[("Model", HOSTILE)],
        reliability=cal.reliability(p, labels).to_dict(),
        temperature=cal.fit_temperature(p, labels).to_dict(),
        tolerance=0.05,
        detectable={"now": report.detectable or {}, "in_30_days": report.detectable or {}},
        ratings_per_prediction={"1": 400},
        left_out=[LeftOut(HOSTILE, 3, HOSTILE)],
        subgroups=[Subgroup(HOSTILE, report.to_dict())],
        versions=[("calibrant", "0.1.0")],
        active_map={"version": 3, "method": HOSTILE, "promotion": {"reason": HOSTILE}},
        drift={"status": "alarm", "change": {"sentence": HOSTILE}, "level": 4e-98},
    )


def test_every_value_is_escaped(contents: ReportContents) -> None:
    read = Reader(page(contents))
    assert "script" not in read.tags
    assert read.text.count(HOSTILE) >= 8 and "49" not in read.text.split("{{")[0]


def drawn(contents: ReportContents) -> list[bytes]:
    """Return the figures of a report, SVG each."""
    return [b64decode(each.source.partition(",")[2]) for each in figures(contents)]


def test_it_needs_nothing_from_elsewhere(contents: ReportContents) -> None:
    read = Reader(page(contents))
    assert not {"script", "link", "iframe", "object"} & set(read.tags)
    for name, value in read.attributes:
        if name == "src":
            assert re.fullmatch(r"data:image/svg\+xml;base64,[\w+/=]+", value)
        else:
            assert "//" not in value and name != "href", (name, value)


def test_every_table_that_scrolls_is_reached_by_keyboard(contents: ReportContents) -> None:
    """On a narrow screen a wide table scrolls; without a tab stop and a name, only a pointer reaches its right side."""
    regions = re.findall(r'<div class="scroll"([^>]*)>', page(contents))
    assert len(regions) > 3
    for attributes in regions:
        assert re.search(r' tabindex="0" role="region" aria-label="[^"]+"$', attributes)


def test_the_sections_come_in_order(contents: ReportContents) -> None:
    text = Reader(page(contents)).text
    titles = [
        "1. Verdict", "2. Data", "3. Smallest errors that these data would have shown",
        "What the period could not have shown: smaller", "4. Measurements", "5. Figures",
        "6. Assumptions", "7. Calibration map in use", "8. Change and alarm", "9. Versions",
        "Not a medical device",
    ]  # fmt: skip
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert "After 30 more days" in text and "100" in text


def test_no_number_has_an_exponent(contents: ReportContents) -> None:
    text = Reader(page(contents)).text
    assert not re.search(r"\d(\.\d+)?e[+-]?\d", text)
    assert "more than 1,000,000,000" in text


@pytest.mark.parametrize("value", [1e-300, -3e-9, 4.2e-4, 0.1, 7.0, 12345.6, 1e12, -1e300])
def test_numbers_are_never_written_with_an_exponent(value: float) -> None:
    for digits in (1, 3, 5):
        assert "e" not in plain_number(value, digits).replace("between", "").replace(
            "below", ""
        ).replace("more", "").replace("less", "")


def test_the_three_verdicts(contents: ReportContents) -> None:
    for tolerance, words in ((0.9, "Within tolerance"), (0.0, "outside tolerance"), (None, "No tolerance")):  # fmt: skip
        text = Reader(page(replace(contents, tolerance=tolerance))).text
        assert words in text or tolerance == 0.0
    value = contents.estimates["ece"]["value"]
    assert "Undecided" in Reader(page(replace(contents, tolerance=value))).text


@pytest.mark.parametrize(
    ("above_null", "advice"),
    [
        (True, "you need not act at this tolerance. The error is more than chance"),
        (False, "nothing now"),
    ],
)
def test_within_the_tolerance_more_than_chance_can_be_corrected(
    contents: ReportContents, above_null: bool, advice: str
) -> None:
    metrics = dict(contents.metrics)
    metrics["metrics"] = {
        **metrics["metrics"],
        "ece": {**metrics["metrics"]["ece"], "interval": [0.01, 0.04], "above_null": above_null},
    }
    text = Reader(page(replace(contents, metrics=metrics, tolerance=0.05))).text
    assert f"What to do: {advice}" in text


def test_nothing_is_shown_as_zero_where_there_is_no_value(contents: ReportContents) -> None:
    """The Dice score has no cases: a reason instead of a number."""
    text = " ".join(Reader(page(contents)).text.split())
    assert "Dice over cases – no value: " in text


@pytest.fixture(scope="module")
def of_few_units() -> ReportContents:
    """Four patients, and a single one in a subgroup: no interval, and nothing of a service."""
    rng = np.random.default_rng(3)
    p, patients = rng.random(200), np.arange(200) // 50
    labels = (rng.random(200) < p).astype(int)
    report = cal.evaluate(p, labels, ["ece", "brier"], units=patients)
    one = cal.evaluate(p[:50], labels[:50], ["ece"], units=patients[:50])
    return ReportContents(
        title="Few",
        metrics=report.to_dict(),
        reliability=cal.reliability(p, labels, units=patients).to_dict(),
        temperature=cal.fit_temperature(p, labels, units=patients).to_dict(),
        subgroups=[Subgroup("site A", one.to_dict())],
        extra_tables=[("Cases", ("Case", "Scanner", "Size"), [("a", "–", "3"), ("b", "–", "–")])],
    )


def test_what_too_few_units_leave_unknown_is_not_drawn(of_few_units: ReportContents) -> None:
    text = " ".join(Reader(page(of_few_units)).text.split())
    assert "too few independent units" in text and "no range of calibrated models are drawn" in text
    assert "95 % interval of each bin" not in text
    assert not any("calibrated model" in each for each in Figure.of(drawn(of_few_units)[0]).texts)
    assert "Shaded: its interval" not in text and "Calibrated model, mean" not in text
    assert "Case Size a 3 b –" in text
    assert "docs/guarantees.md" not in text


def test_captions_name_what_is_drawn(contents: ReportContents) -> None:
    text = " ".join(Reader(page(contents)).text.split())
    assert "Grey: where 95 %" in text
    assert "Orange: from the mean" in text and "Calibrated model, mean" in text
    shown = [Figure.of(each).texts for each in drawn(contents)]
    assert {"accuracy", "calibrated model, 95 % of each bin"} <= set(shown[0])
    assert {"Expected calibration error", "tolerance, 0.05"} <= set(shown[1])
    assert "temperature" in shown[2]


def test_a_report_of_files_has_no_sections_of_a_service(of_few_units: ReportContents) -> None:
    text = Reader(page(of_few_units)).text
    assert "7. Versions" in text and "without a drift alarm" in text
    assert "Calibration map in use" not in text and "Change and alarm" not in text


def test_one_unit_is_singular(of_few_units: ReportContents) -> None:
    metrics = of_few_units.subgroups[0].metrics
    text = Reader(page(ReportContents("One", metrics))).text
    assert "There is 1 unit;" in text and "Number of units: 1." in text


def test_a_unit_that_counts_several_times_is_not_a_number_of_patients(
    of_few_units: ReportContents,
) -> None:
    """4,358 patients were "7,777 units were named": each counts once in each hour."""
    split = {"n_units": 7777, "n_units_split": 2208, "n_units_split_estimated": True}
    shown = replace(of_few_units, metrics=of_few_units.metrics | split, unit="patient", drift={})
    text = " ".join(Reader(page(shown)).text.split())
    count = "7,777: a patient counts once in each time slice; about 2,208 patients are in several"
    assert f"Patients {count}" in text and f"Number of patients: {count}." in text
    assert "were named" not in text
    alone = replace(shown, metrics=of_few_units.metrics, drift=None)
    assert "Patients 4 Predictions" in " ".join(Reader(page(alone)).text.split())


def test_a_brier_score_states_over_how_many_classes_it_is(of_few_units: ReportContents) -> None:
    """That of a map of one class was half of the others in the same report, under the same name."""
    rng = np.random.default_rng(3)
    p = rng.random(400)
    y = (rng.random(400) < p).astype(int)
    one, both = np.mean((p - y) ** 2), 2 * np.mean((p - y) ** 2)
    fits = (cal.fit_map(p, y, method="platt"), cal.fit_temperature(p, y))
    for fit, scale, value in zip(fits, ("one class", "sum over classes"), (one, both), strict=True):
        rows = dict(loss_rows(fit.to_dict(), ()))
        shown = rows[f"Brier score ({scale}) on the data of the fit"]
        assert shown.startswith(f"{plain_number(value)} before")
    assert "Brier score (sum over classes)" in Reader(page(of_few_units)).text


def test_the_brier_score_of_two_classes_is_explained(
    contents: ReportContents, of_few_units: ReportContents
) -> None:
    half = plain_number(of_few_units.estimates["brier"]["value"] / 2)
    assert f"which is half: {half}." in Reader(page(of_few_units)).text
    assert "it is half" not in Reader(page(contents)).text
    assert "probability of class 1" in Reader(page(of_few_units)).text


def test_a_report_without_data_says_so() -> None:
    empty = cal.Pane(cal.PaneSpec("multiclass", 3)).evaluate(["ece", "brier"])
    at = "2026-11-26T06:29:12Z"
    text = Reader(page(ReportContents("Empty", empty.to_dict(), generated_at=at))).text
    assert "Not enough data" in text and "0.000" not in text
    assert "Written at 2026-11-26 06:29 UTC." in text
    # No number of a section is missing, and nothing is stated of ratings that are not there.
    assert "5. Figures" in text and "These results have no further figure." in text
    assert "Each prediction has one rating" not in text


def test_an_error_above_its_interval_is_explained(contents: ReportContents) -> None:
    """The interval is for the true error: without a word on that, `0.012, interval 0 to 0.008` is a mistake to a reader."""
    metrics = dict(contents.metrics)
    for bounds, is_explained in (([0.0, 0.008], True), ([0.0, 0.02], False)):
        error = metrics["metrics"]["ece"] | {"value": 0.012, "interval": bounds}
        changed = replace(contents, metrics=metrics | {"metrics": {"ece": error}})
        text = Reader(page(changed)).text
        assert ("The interval is for the true error" in text) == is_explained


def test_a_number_and_its_per_cent_stay_on_one_line(contents: ReportContents) -> None:
    text = Reader(re.sub(r"<svg.*?</svg>", "", page(contents), flags=re.DOTALL)).text
    assert not re.search(r"\d %.{0,20}", text)
    assert "80\u00a0% of samples" in text


def test_a_limit_is_a_test_only_of_what_is_worse_above_it() -> None:
    """An accuracy below the limit of a calibrated model is no sign of calibration."""
    rng = np.random.default_rng(5)
    p = rng.dirichlet([0.3, 0.3, 0.3], 400)
    labels = rng.integers(0, 3, 400)
    report = cal.evaluate(p, labels, ["ece", "accuracy", "nll"])
    text = " ".join(Reader(page(ReportContents("Limits", report.to_dict()))).text.split())
    mean = plain_number(report["accuracy"].null_mean)
    row = text[text.index("Accuracy") : text.index("Negative log-likelihood")]
    assert f" {mean} – –" in row and report["accuracy"].null_q95 is not None
    row = text[text.index("Expected calibration error 0") : text.index("Accuracy")]
    assert f"{plain_number(report['ece'].null_q95)} above" in row
    assert "“Above”: worse than in 95 % of samples" in text


def test_verdicts_are_mentioned_only_with_a_tolerance(contents: ReportContents) -> None:
    for tolerance, is_mentioned in ((0.05, True), (None, False)):
        text = Reader(page(replace(contents, tolerance=tolerance))).text
        assert ("The other verdicts do not replace it" in text) == is_mentioned
        assert "in 80\u00a0% of samples" in text


def test_columns_of_numbers_are_aligned(of_few_units: ReportContents) -> None:
    text = page(of_few_units)
    assert '<th scope="col" class="number">Size</th>' in text
    assert '<td class="number">3</td>' in text and '<th scope="col">Case</th>' in text


def test_numbers_of_one_cell_have_equal_decimals() -> None:
    assert interval_text([0.00442, 0.00601]) == "0.0044 to 0.0060"
    assert interval_text([0.0, 0.0645]) == "0 to 0.065"
    assert interval_text([-0.159, None]) == "−0.159 to –"


def test_readers_that_are_not_compared_have_a_reason(contents: ReportContents) -> None:
    """Of too many records nothing was stated, as if there were no readers."""
    missing = replace(contents, readers_missing="the window contains more than 30000 records")
    text = Reader(page(missing)).text
    assert "Readers" in text and "not compared. The window contains more than 30000" in text
    assert "not compared" not in Reader(page(contents)).text


def test_metrics_over_time_are_drawn_from_two_parts_on(contents: ReportContents) -> None:
    rows = [
        {"window": {"from": f"2026-03-0{day}T00:00:00Z"}, "n_predictions": 9, "n_labelled": 9, "metrics": contents.estimates}
        for day in (1, 2, 3)
    ]  # fmt: skip
    for n, is_drawn in ((3, True), (1, False)):
        found = figures(replace(contents, series={"every_s": 86_400, "series": rows[:n]}))
        assert ("Over time" in [each.title for each in found if each.is_first]) == is_drawn


def test_the_caption_over_time_describes_what_is_drawn(contents: ReportContents) -> None:
    """A grey area and a line of confidence were described of days with too few units for either."""
    error, accuracy = {"value": 0.1, "null_q95": 0.2}, {"value": 0.7, "null_mean": 0.8}
    for has_null in (True, False):
        found = {"ece": error, "accuracy": accuracy}
        if not has_null:
            found = {name: {"value": each["value"]} for name, each in found.items()}
        rows = [
            {"window": {"from": f"2026-03-0{day}T00:00:00Z"}, "n_predictions": 90, "n_labelled": n, "metrics": found}
            for day, n in ((1, 90), (2, 90), (3, 4))
        ]  # fmt: skip
        event = {"at": "2026-03-02T00:00:00Z", "kind": "version", "name": "2.1"}
        series = {"every_s": 86_400, "series": rows, "events": [event]}
        shown = next(each for each in figures(replace(contents, series=series)) if each.title == "Over time")  # fmt: skip
        assert shown.caption == over_time_caption(series)
        assert ("above the grey area" in shown.caption) == has_null
        assert ("below the confidence" in shown.caption) == has_null
        assert ("too few independent units" in shown.caption) != has_null
        assert "Hollow: few labels" in shown.caption
        assert shown.caption.endswith("Dotted lines: version 2.1 (2026-03-02 00:00 UTC).")
        drawn = b64decode(shown.source.partition(",")[2])
        assert ("calibrated model" in Figure.of(drawn).texts) == has_null


def test_results_before_a_map_are_not_taken_for_those_after_it(contents: ReportContents) -> None:
    """A committee read "do not use the probabilities as they are" of a model whose probabilities were corrected."""
    measured = {"metrics": {"ece": {"value": 0.2, "interval": [0.15, 0.25]}}}
    with_map = Reader(page(replace(contents, metrics=measured))).text
    assert "before map version 3, which is in use" in with_map
    assert "do not use the probabilities without the map" in with_map
    without = Reader(page(replace(contents, metrics=measured, active_map=None))).text
    assert "map version 3" not in without
    assert "do not use the probabilities as they are" in without


OFF = {
    "status": "watch",
    "calibration": {"word": "off", "sentence": "Off by at least 0.1 of 1 Nov 2026."},
    "change": {"word": "none_seen", "sentence": "No change is seen."},
    "recommendation": {"action": "temperature", "reason": "Divide the logits by 2."},
}


def test_the_words_of_the_model_are_the_one_verdict_of_a_report_of_the_present(
    contents: ReportContents,
) -> None:
    now = replace(contents, drift=OFF, are_words_the_verdict=True)
    verdict = main_verdict(now)
    assert (verdict.state, verdict.headline) == ("outside", "Off")
    assert verdict.sentences == ("Off by at least 0.1 of 1 Nov 2026.", "No change is seen.")
    assert verdict.details[0] == "What to do: Divide the logits by 2."
    assert verdict.details[1].startswith("All data of this report: Expected calibration error is")
    changed = OFF | {"change": {"word": "changed", "sentence": "Changed about 1 Nov."}}
    assert main_verdict(replace(now, drift=changed)).headline == "Off, changed"
    waiting = OFF | {"recommendation": {"action": "collect_more", "reason": "Change nothing yet."}}
    assert "What to do: Change nothing yet." in Reader(page(replace(now, drift=waiting))).text


def test_a_report_of_another_period_has_the_verdict_of_its_own_data(
    contents: ReportContents,
) -> None:
    verdict = main_verdict(replace(contents, drift=OFF))
    assert verdict == main_verdict(replace(contents, drift=None)) and len(verdict.sentences) == 2
    text = Reader(page(replace(contents, drift=OFF))).text
    assert text.count("Off by at least 0.1 of 1 Nov 2026.") == 1
    assert text.index("8. Change and alarm") < text.index("Off by at least 0.1 of 1 Nov 2026.")


@pytest.mark.parametrize(("predicted", "is_misleading"), [(0.75, True), (0.58, False)])
def test_a_report_within_tolerance_warns_of_a_threshold_that_misleads(
    contents: ReportContents, predicted: float, is_misleading: bool
) -> None:
    decision = {"value": 0.1, "threshold": 0.3, "scope": "positive", "acted_on": 0.2}
    decision |= {"observed": 0.55, "predicted": predicted}
    estimates = {"ece": {"value": 0.01, "interval": [0.0, 0.02]}, "net_benefit": decision}
    measured = {"n_units": 10_000, "metrics": estimates}
    found = main_verdict(
        replace(contents, metrics=measured, tolerance=0.05, reliability={"table": []})
    )
    assert found.state == ("on_average" if is_misleading else "within_tolerance")
    at = "before you act on predictions flagged at threshold 0.3, correct these probabilities"
    assert (at in found.details[-1]) == is_misleading
    assert any("Of 100 flagged, 55 had" in each for each in found.sentences) == is_misleading


def within(contents: ReportContents, **more: dict[str, object]) -> ReportContents:
    """Return contents whose error is within the tolerance on average, with more metrics."""
    estimates = {"ece": {"value": 0.01, "interval": [0.0, 0.015]}, **more}
    measured = {"n_units": 10_000, "scope": "top_label", "metrics": estimates}
    return replace(contents, metrics=measured, tolerance=0.02, reliability=None)


def decision(threshold: float, observed: float, predicted: float) -> dict[str, object]:
    """Return the net benefit at a threshold, as the service has it."""
    found = {"value": 0.1, "threshold": threshold, "scope": "positive", "acted_on": 0.2}
    return found | {"observed": observed, "predicted": predicted, "treat_all": 0.05}


def test_the_worst_threshold_is_named_first_and_the_others_with_it(
    contents: ReportContents,
) -> None:
    """Only the first was named, of which 23 of 100 had the finding and not 29; at the second it was 40 and not 53."""
    shown = within(
        contents,
        **{f"net_benefit(threshold={each[0]})": decision(*each) for each in ((0.1, 0.23, 0.29), (0.3, 0.4, 0.53), (0.7, 0.8, 0.805))},
    )  # fmt: skip
    found = main_verdict(shown)
    assert "Of 100 flagged, 40 had the outcome; the model predicted 53. Nor at 0.1." in str(found)
    assert found.details[-1].startswith("What to do: you need not act at this tolerance. That is")
    assert "flagged at thresholds 0.1 and 0.3, correct" in found.details[-1]


@pytest.mark.parametrize("observed", [0.0, 1.0])
def test_few_flagged_predictions_of_one_kind_are_no_evidence(
    contents: ReportContents, observed: float
) -> None:
    """Of 3 units without an outcome, the standard error was 0, so that any difference was certain."""
    few = within(contents, net_benefit=decision(0.3, observed, 0.5) | {"acted_on": 3 / 10_000})
    assert main_verdict(few).state == "within_tolerance"


def test_a_class_whose_own_error_is_too_large_is_an_exception(contents: ReportContents) -> None:
    """Too many and too few marks cancelled in the top class: 0.004 was within 0.02, and that of the tumour 0.025."""
    errors = {
        "probability of tumour": {"value": 0.0248, "interval": [0.0243, 0.0253]},
        "probability of cyst": {"value": 0.0248, "interval": [0.0, 0.0253]},
    }
    shown = replace(within(contents), class_errors=errors)
    found = main_verdict(shown)
    sentence = "Not of the probability of tumour: its error is 0.025 (0.024 to 0.025)."
    assert (found.state, found.sentences[-1]) == ("on_average", sentence)
    assert "between the confidence of the top class and the observed" in found.sentences[0]
    good = OFF | {"calibration": {"word": "good", "sentence": "Good: at most 0.01."}}
    good["recommendation"] = {"action": "none", "reason": "No action is needed."}
    of_words = main_verdict(replace(shown, drift=good, are_words_the_verdict=True))
    assert (of_words.headline, of_words.sentences[1]) == ("Good on average", sentence)
    assert of_words.details[0] == (
        "What to do: No action is needed. That is on average: before you act on the probability of tumour, correct these probabilities."
    )


def test_acting_that_is_worse_than_not_acting_is_in_the_verdict(contents: ReportContents) -> None:
    harm = "Acting on the model at threshold 0.3 is worse than not acting: its net benefit is −0.020 (−0.030 to −0.010)."
    for interval, is_harm in (([-0.03, -0.01], True), ([-0.03, 0.01], False), (None, False)):
        at = decision(0.3, 0.4, 0.4) | {"value": -0.02, "interval": interval}
        for tolerance in (0.02, None):
            shown = replace(within(contents, net_benefit=at), tolerance=tolerance)
            assert (harm in main_verdict(shown).sentences) == is_harm


def test_after_a_change_the_thresholds_are_those_since_it(contents: ReportContents) -> None:
    shown = within(contents, net_benefit=decision(0.3, 0.5, 0.5))
    shown = replace(shown, drift=OFF)
    assert flagged_note(shown).startswith("Over all days of the report.")
    after = {"start": "2026-11-15T00:00:00Z", "metrics": {"net_benefit": decision(0.3, 0.2, 0.6)}}
    changed = replace(shown, since_change=after)
    assert "20 had the outcome; the model predicted 60." in flagged_sentences(changed)[0]
    assert flagged_note(changed).startswith("Since the change, 15 Nov 2026. A prediction is")


def test_sensitivity_and_specificity_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(1, 4, 3000)
    y = (rng.random(3000) < p).astype(int)
    report = cal.evaluate(p, y, ["ece", "net_benefit(threshold=0.3)", "net_benefit(threshold=0.1)"])
    shown = ReportContents("Rates", report.to_dict(), classes=("normal", "finding"))
    for threshold, sentence in zip((0.3, 0.1), flagged_sentences(shown), strict=True):
        sensitivity = percent((p[y == 1] >= threshold).mean())
        specificity = percent((p[y == 0] < threshold).mean())
        assert sentence.startswith(f"Threshold {threshold}: {percent((p >= threshold).mean())} of")
        assert sentence.endswith(f"Sensitivity {sensitivity}, specificity {specificity}.")
        assert "had the label finding; the model" in sentence


def test_a_net_benefit_has_its_threshold_also_if_it_is_the_default_one() -> None:
    """The key of the default threshold has none: "Net benefit" left open at which threshold."""
    rng = np.random.default_rng(4)
    p = rng.random(300)
    y = (rng.random(300) < p).astype(int)
    report = cal.evaluate(p, y, ["ece", "net_benefit(threshold=0.5)"])
    text = Reader(page(ReportContents("Half", report.to_dict()))).text
    assert "Net benefit (threshold=0.5)" in text and "Net benefit\n" not in text


def test_the_decision_curve_of_the_top_class_is_about_correct_predictions(
    contents: ReportContents,
) -> None:
    """It had true positives and the share with the outcome, which was the accuracy."""
    rng = np.random.default_rng(4)
    p = rng.dirichlet([1, 1, 1], 300)
    y = (p.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)
    curve = cal.decision_curve(p, y, thresholds=[0.4, 0.6]).to_dict()
    found = {each.title: each for each in figures(replace(contents, decision_curve=curve))}
    shown = found["Decision curve"]
    assert "relying on the top class" in shown.caption and "true positives" not in shown.caption
    drawn = Figure.of(b64decode(shown.source.partition(",")[2])).texts
    assert any(each.startswith("accuracy: 0.") for each in drawn)


def test_a_reader_who_differs_is_in_the_verdict(contents: ReportContents) -> None:
    """Only a sentence in the fourth section named them."""
    odd = {"name": "c", "kappa": 0.5, "kappa_of_others": 0.8, "p_value": 1e-5}
    odd |= {"shares": [0.5, 0.3, 0.2], "shares_of_others": [0.3, 0.3, 0.4]}
    readers = [{"name": name, "metrics": {"ece": {"value": value}}} for name, value in (("a", 0.04), ("b", 0.03), ("c", 0.09))]  # fmt: skip
    shown = replace(contents, odd_reader=odd, readers=readers, classes=("x", "y", "z"))
    assert main_verdict(shown).sentences[-3:] == (
        "c differs from the other readers: kappa 0.500 with them, 0.800 among themselves.",
        "c gave x in 50 % of the predictions, the others in 30 %.",
        "The model's error is 0.090 against c, and 0.030 to 0.040 against the others.",
    )
    alike = replace(shown, odd_reader=odd | {"shares_of_others": [0.501, 0.3, 0.199]})
    assert "about as often as the others" in str(main_verdict(alike).sentences)


def test_the_label_of_a_threshold_is_that_of_the_class_on_which_one_acts() -> None:
    """Of two classes the errors are of the top class; one acts on the second."""
    rng = np.random.default_rng(4)
    p = rng.random(300)
    y = (rng.random(300) < p).astype(int)
    report = cal.evaluate(np.stack([1 - p, p], 1), y, ["ece", "net_benefit(threshold=0.3)"])
    shown = ReportContents("Rates", report.to_dict(), classes=("normal", "finding"))
    assert "had the label finding;" in flagged_sentences(shown)[0]


def test_an_error_that_is_small_on_average_names_the_bin_that_is_not(
    contents: ReportContents,
) -> None:
    """The background of images has most of the weight, and is easy."""
    table = [
        {"mean_confidence": 0.01, "accuracy": 0.01, "n_effective": 4000.0, "weight": 980.0},
        {"mean_confidence": 0.97, "accuracy": 0.77, "n_effective": 60.0, "weight": 20.0},
    ]
    estimates = {"ece": {"value": 0.01, "interval": [0.0, 0.02]}}
    measured = replace(contents, metrics={"metrics": estimates}, reliability={"table": table})
    found = main_verdict(replace(measured, tolerance=0.05))
    assert found.headline == "Within tolerance on average over all predictions"
    shown = "Where the model says 97 %, the labels show 77 % (2 % of the predictions)."
    assert found.sentences[-1] == f"Not in every range of scores. {shown}"
    good = OFF | {"calibration": {"word": "good", "sentence": "Good."}}
    of_words = main_verdict(
        replace(measured, tolerance=0.05, drift=good, are_words_the_verdict=True)
    )
    assert (of_words.state, of_words.headline) == ("on_average", "Good on average")
    assert shown in of_words.sentences[1]


@pytest.mark.parametrize(
    ("promised", "worst", "sentence"),
    [
        (False, 0.087, "If all voxels of a patient were fully dependent, as in the figure of reliability, chance could reach 0.087."),
        (False, 0.020, "chance alone does not explain it."),
        (True, 0.087, "chance alone does not explain it."),
    ],
)  # fmt: skip
def test_chance_is_excluded_only_where_the_dependence_is_known(
    promised: bool, worst: float, sentence: str
) -> None:
    """The sentence was "chance alone does not explain it" beside a figure whose points lay inside the range of chance."""
    error = {
        "value": 0.032, "null_mean": 0.01, "null_q95": 0.02, "above_null": True, "null_promised": promised,
        "null_worst_case": {"mean": 0.05, "q95": worst},
    }  # fmt: skip
    of_images = ReportContents("Images", {"metrics": {"ece": error}}, unit="patient", row="voxel")
    assert main_verdict(of_images).details[1].endswith(sentence)
    assert ("does not explain" in main_verdict(of_images).details[1]) == (
        "does not explain" in sentence
    )


@pytest.mark.parametrize(
    ("scope", "classes", "name"),
    [
        ("positive", ("benign", "malignant"), "ECE of the probability of malignant"),
        ("positive", (), "ECE of the probability of class 1"),
        ("top_label", ("a", "b", "c"), "ECE of the confidence of the top class"),
        ("full", ("a", "b", "c"), "ECE of the confidence of the top class"),
    ],
)
def test_the_error_of_a_fit_is_named_by_its_probability(
    scope: str, classes: tuple[str, ...], name: str
) -> None:
    """The ECE of class 1 of two classes was called that of the top class."""
    losses = {"before": {"ece": 0.032}, "after": {"ece": 0.033}, "scope": scope}
    assert loss_rows(losses, classes) == [
        (f"{name} on the data of the fit", "0.032 before, 0.033 after")
    ]


def test_no_false_alarm_rate_is_stated_where_none_is_claimed() -> None:
    no_claim = "No false-alarm rate is claimed: a unit that is in several cohorts counts in each."
    for detail in (no_claim, None):
        drift = {"status": "ok", "level": 1 / 3650, "units": {"detail": detail}}
        stated = dict(alarm_rows(drift))["False alarms"]
        assert (stated == no_claim) == (detail is not None)
        assert ("at most 1 false alarm in 3,650 evaluations" in stated) == (detail is None)


def test_what_only_some_results_have_is_stated(contents: ReportContents) -> None:
    """It read "nothing" for images whose regions left out half of the voxels."""
    for sentences, words in (
        (["No case was left out.", "Voxels outside …"], "No case was left out. Voxels outside …"),
        ([], "Nothing: every prediction that was received is in the results."),
    ):
        text = Reader(page(replace(contents, left_out=(), partly_left_out=sentences))).text
        assert words in text and ("Nothing: every" in text) == (not sentences)


def test_agreement_about_masks_is_kappa(contents: ReportContents) -> None:
    """Three readers agreed in 98 % of voxels, which are background, below the words that one of them differs."""
    error = {"value": 0.1}
    of_mask = {
        "name": "reader_1", "n_ratings": 9, "agreement": 0.98, "kappa": {"reader_2": 0.6, "reader_3": 0.3, "reader_4": None},
        "metrics": {"ece": error, "dice": {"value": 0.7}},
    }  # fmt: skip
    of_rows = of_mask | {"metrics": {"ece": error}}
    for reader, shown, header in (
        (of_mask, "0.450", "Kappa with the others, mean"),
        (of_rows, "98 %", "Agreement with the others"),
    ):
        assert reader_rows([reader])[0]["agreement"] == shown
        assert header in Reader(page(replace(contents, readers=[reader]))).text


def test_an_error_above_its_interval_has_a_line_at_each_table(contents: ReportContents) -> None:
    note = "The interval is of the true error, without the part due to chance; it can lie below the measured value."
    for bounds, n in (([0.0, 0.024], 3), ([0.0, 0.1], 0)):
        found = {"metrics": {"ece": {"value": 0.0618, "interval": bounds}}}
        shown = replace(contents, metrics=found, subgroups=[Subgroup("site:A", found)])
        assert Reader(page(shown)).text.count(note) == n


def test_subgroups_outside_the_tolerance_have_their_period(contents: ReportContents) -> None:
    found = {"metrics": {"ece": {"value": 0.2, "interval": [0.1, 0.3]}}}
    groups = [Subgroup(name, found | {"test": {"p_value": 0.5}}) for name in ("site:A", "site:B")]
    assert subgroup_sentence(replace(contents, subgroups=groups)) == (
        "Over all days of the report: outside the tolerance by their own intervals: 2 of 2 subgroups."
    )


def test_the_smallest_errors_are_stated_at_scores_that_the_model_gives() -> None:
    """Of a finding of 4 %, they were stated where the model says 50 %."""
    rng = np.random.default_rng(6)
    p = rng.beta(1, 24, 4000)
    y = (rng.random(4000) < p).astype(int)
    report = cal.evaluate(p, y, ["ece", "net_benefit(threshold=0.1)"])
    shown = ReportContents("Rare", report.to_dict(), reliability=cal.reliability(p, y).to_dict())
    assert places_of(shown) == [0.1]
    plain = replace(shown, metrics=cal.evaluate(p, y, ["ece"]).to_dict())
    assert places_of(plain) == pytest.approx([y.mean()])
    assert places_of(replace(plain, reliability=None)) == [0.5]
    [shifted, *_] = detectable_errors(report.detectable or {}, [0.1])
    intercept = (report.detectable or {})["intercept"]
    higher = 1 / (1 + np.exp(-(np.log(1 / 9) + intercept)))
    assert shifted.endswith("where the model says 10 %")
    assert f"a true rate of {100 * higher:.1f} % or more" in shifted


def test_a_temperature_that_may_be_1_has_no_direction() -> None:
    """From 0.941 to 1.851, it read "the data determine the temperature", below "above 1, the model was overconfident"."""
    fitted = {"verdict": "ok", "detail": "the data determine the temperature", "interval": [0.941, 1.851]}  # fmt: skip
    assert assessment(fitted) == "The data do not show whether it is above 1 or below"
    assert "below 1: the model is under" in assessment(fitted | {"interval": [0.5, 0.9]})
    assert assessment(fitted | {"interval": None}) == "the data determine the temperature"
