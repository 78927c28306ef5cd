"""Diagrams of cases: drawn from the answer, the same bytes for the same answer, and without cases saying so."""

import io
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.figures.case_reliability import draw_histogram, draw_one_case, draw_reliability_boxes
from calibrant.figures.cases import draw_boxes
from calibrant.figures.images import image
from calibrant.segmentation.case_report import case_reliability, cases_of

SPEC = PaneSpec("segmentation", 3)
DRAWINGS = pytest.mark.parametrize(
    "draw", [draw_histogram, draw_boxes, draw_reliability_boxes, draw_one_case]
)


def answer(n_cases=6, n=80, **options):
    rng = np.random.default_rng(2)
    pane = Pane(SPEC)
    if n_cases:
        rows = rng.dirichlet(np.ones(3), n_cases * n)
        columns = {
            "probabilities": rows,
            "labels": (rows.cumsum(axis=1) > rng.random(len(rows))[:, None]).argmax(axis=1),
            "cases": [f"scan-{i // n}" for i in range(len(rows))],
        }
        pane.fill_batch(Batch.from_columns(columns, task="segmentation").batch)
    view = View(pane, PaneQuery(bins=20, options=options))
    one = {"case": case_reliability(view, "scan-0")} if n_cases else {}
    return {"model": "seg <$x$> & co"} | cases_of(view) | one


@DRAWINGS
def test_both_formats_and_the_same_bytes_for_the_same_answer(draw):
    picture = imread(io.BytesIO(image(draw(answer()), "image/png")), format="png")
    assert picture.shape[0] > 600
    assert picture[..., :3].min() < 0.2
    drawn = image(draw(answer()))
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert drawn == image(draw(answer()))
    assert drawn != image(draw(answer(n=60)))


@pytest.mark.parametrize("draw", [draw_histogram, draw_boxes, draw_reliability_boxes])
@pytest.mark.parametrize("n_cases", [0, 1])
def test_none_and_one(draw, n_cases):
    assert image(draw(answer(n_cases)), "image/png")


@pytest.mark.parametrize("of_class", [0, 2])
def test_one_class_of_no_cases(of_class):
    assert image(draw_histogram(answer(0), of_class=of_class), "image/png") == image(
        draw_histogram(answer(0)), "image/png"
    )


@DRAWINGS
def test_a_case_that_counts_nowhere(draw):
    given = answer(2, missing="skip_case")
    for row in given["cases"]:
        row["counted"] = [False, False]
    assert image(draw(given), "image/png")


@DRAWINGS
def test_without_dice(draw):
    given = answer()
    for row in given["cases"]:
        row["dice"] = {"mean": None, "by_class": [None, None]}
    assert image(draw(given), "image/png")


@pytest.mark.parametrize("draw", [draw_histogram, draw_one_case])
def test_one_class(draw):
    one, other, every = (
        image(draw(answer(), **kind)) for kind in ({"of_class": 0}, {"of_class": 1}, {})
    )
    assert len({one, other, every}) == 3


def test_one_case_has_a_panel_a_class():
    given = answer()
    given["case"]["classes"] *= 6
    for each in given["case"]["classes"][0]["table"]:
        each |= {"weight": 0.0, "mean_confidence": None, "observed_frequency": None}
    root = ElementTree.fromstring(image(draw_one_case(given)))
    panels = [each.get("id") for each in root.iter() if (each.get("id") or "").startswith("axes_")]
    assert len(panels) == 2 * 9
