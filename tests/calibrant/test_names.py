"""Names of units, cases, ids, raters and slices: any text of one line, or an integer; one rule in every function."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pytest

import calibrant as cal
from calibrant import Batch, CalibrationInputError
from calibrant.input.labels import named_raters, read_labels
from calibrant.input.names import IDENTIFIER, are_names, name_of, names_of, slices_of

NAMES = [
    "Müller, A",
    "img/0001.dcm",
    "Zürich / Nord",
    "My Model v2",
    "...",
    "a" * 256,
    "患者 7",
    "1.0",
]
NO_NAMES: list[Any] = [
    "",
    ".",
    "..",
    "a\nb",
    "\t",
    "a\x00",
    "a\x85",
    "\ud800",
    "a" * 257,
    None,
    1.0,
    True,
    b"a",
    ["a"],
]


@pytest.mark.parametrize("text", NAMES)
def test_any_text_of_one_line_is_a_name(text: str) -> None:
    assert name_of(text) == text


@pytest.mark.parametrize("value", NO_NAMES)
def test_what_is_no_name(value: Any) -> None:
    assert name_of(value) is None
    assert names_of(["a", value]) == ["a", None]


def test_integers_are_named_by_their_digits() -> None:
    assert names_of([1, np.int8(-3), 2**63]) == ["1", "-3", str(2**63)]
    assert names_of([1, 2]) == names_of(["1", "2"])
    assert name_of(10**5000) is None


def test_two_spellings_of_an_accent_are_one_name() -> None:
    apart, joined = unicodedata.normalize("NFD", "Müller"), "Müller"
    assert apart != joined
    assert name_of(apart) == joined
    # 512 characters that are 256 in the normal form.
    assert name_of("e\N{COMBINING ACUTE ACCENT}" * 256) == "é" * 256
    assert are_names([joined])
    assert not are_names([apart])
    found = [
        Batch.from_columns({"confidences": [0.5], "units": [each]}).batch
        for each in (apart, joined)
    ]
    assert found[0].digest() == found[1].digest()


def test_panes_of_names_equal_panes_of_other_types_of_the_same_names() -> None:
    p, y = [0.9, 0.2, 0.6], [1, 0, 0]
    digests = {cal.Pane.fill(p, y, units=units).digest() for units in (
        [1, 2, 2], ["1", "2", "2"], np.array([1, 2, 2]), np.array(["1", "2", "2"]), np.array([[1], [2], [2]]),
        np.array([1, "2", 2], object))}  # fmt: skip
    assert len(digests) == 1
    assert cal.Pane.fill(p, y, units=["1.0", "2", "2"]).digest() not in digests


def test_names_survive_packing() -> None:
    columns = {"confidences": [0.5] * len(NAMES), "labels": [1] * len(NAMES)}
    named = {name: NAMES for name in ("ids", "units", "cases")}
    batch = Batch.from_columns(columns | named | {"slices": {"site (Ort)": NAMES}}).batch
    read = Batch.unpack(batch.pack())
    assert read.digest() == batch.digest()
    assert read.units is not None
    assert read.units.tolist() == NAMES


def test_ids_and_raters_of_labels_follow_the_same_rule() -> None:
    columns = {"ids": [7, "img/1"], "labels": [0, [1, 0]], "raters": ["Dr. Müller", [3, None]]}
    first, second = read_labels(columns, 2).rows
    assert (first.id, first.ratings) == ("7", [("Dr. Müller", 0, None)])
    assert (second.id, second.unnamed, second.ratings) == ("img/1", {0: 1}, [("3", 1, None)])
    assert list(named_raters([0, 1], ["Dr. Müller", 3], 2)) == ["Dr. Müller", "3"]
    for column in ("ids", "raters"):
        with pytest.raises(CalibrationInputError) as caught:
            read_labels({"ids": ["a"], "labels": [0], "raters": ["r"]} | {column: ["a\nb"]}, 2)
        assert caught.value.violations[0].rule == "name"


def test_a_rejected_name_is_described_and_not_quoted() -> None:
    with pytest.raises(CalibrationInputError) as caught:
        cal.ece([0.9], [1], units=["Anna\nMüller"])
    assert "Anna" not in str(caught.value)
    assert "a text with a control character; expected a text of 1 to 256 characters" in str(
        caught.value
    )
    with pytest.raises(CalibrationInputError, match="Convert whole numbers to integers"):
        cal.ece([0.9], [1], units=[1.0])


def test_identifiers_of_models_and_batches_stay_as_they_are() -> None:
    assert IDENTIFIER.fullmatch("site-a.2026:1@x")
    for text in ("a b", "ü", "..", "", "a" * 129):
        assert not IDENTIFIER.fullmatch(text)


def test_combinations_of_slices_with_commas_are_read_back() -> None:
    table = {
        "p": [0.9, 0.2],
        "y": [1, 0],
        "site": ["Bern, Insel", "100 %"],
        "reader": ["a:b", "c,d"],
    }
    panes = cal.fill_by(
        table,
        cal.PaneSpec("binary", 2),
        confidences="p",
        labels="y",
        slices=["site", "reader"],
        combine_slices=True,
    )
    found = [slices_of(key.slice) for key in panes]
    expected = [{"site": "Bern, Insel", "reader": "a:b"}, {"site": "100 %", "reader": "c,d"}]
    assert len(found) == 2
    assert all(each in found for each in expected)
