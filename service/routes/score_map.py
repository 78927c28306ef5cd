"""One posted probability map compared with its reference masks: counts and Dice, or a figure with contours; nothing is stored."""

from typing import Any

import numpy as np
import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from calibrant.core.errors import CalibrationInputError
from calibrant.figures.probability_map import (
    draw_probability_map,
    outline_length,
    regions,
)
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import ChosenFormat, media_type_of
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.parsed_batch import object_of, reject_unknown
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.operations import Access, Operations, Scorer
from calibrant_server.service.reads.representations import image_of, or_drawn
from calibrant_server.service.settings import Settings

router = Operations("score")
MAX_PIXELS, MAX_MASKS, MAX_SIDE = 1_000_000, 9, 4096
# Of the outlines of one figure, in sides of pixels. A megapixel with nine readers' organs has a tenth; noise has millions.
MAX_OUTLINE = 200_000
MAX_NAME = 60
Pixels = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class MapQuery(BaseModel):
    """Where the class is predicted, and how the map is shown."""

    model_config = ConfigDict(extra="forbid")

    threshold: float = Field(
        0.5, gt=0, le=1, description="Minimum probability of a positive pixel."
    )
    class_: str = Field(
        "1",
        alias="class",
        max_length=60,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="Name in the heading.",
    )
    format: ChosenFormat = None


class MapBody(BaseModel):
    """Probabilities of one class over an image, and the masks of the raters."""

    model_config = ConfigDict(extra="forbid")

    probabilities: list[list[float]] = Field(description="Row by row, in [0, 1].")
    mask: list[list[int]] | None = Field(None, description="Reference, 0 or 1 per pixel.")
    masks: dict[str, list[list[int]]] | None = Field(
        None, description="Instead: one per reader, by name; at most 9."
    )
    image: list[list[float]] | None = Field(
        None, description="Image drawn below the map: one number per pixel."
    )


class MapCounts(BaseModel):
    """Counts of pixels for one mask."""

    true_positive: int
    false_negative: int
    false_positive: int
    dice: float | None = Field(description="null if neither has a pixel.")


class MapScores(BaseModel):
    """Counts by mask."""

    height: int
    width: int
    threshold: float
    masks: dict[str, MapCounts]


@router.operation(
    "POST /v1/score/map",
    Scorer,
    or_drawn(success(MapScores, "The counts, or the figure")),
    406,
    query=MapQuery,
    takes_=takes("A probability map with a reference mask", {JSON: MapBody}),
)
async def score_map(access: Access) -> Response:
    """Compare a probability map with reference masks, or draw it with contours of true and false positives and false negatives."""
    query = access.query
    media_type = media_type_of(query.format, access.request)
    found = await access.computed(_read, query, access.settings)
    if media_type != JSON:
        await in_thread(_reject_long_outlines, found)
        drawn = await run_in_threadpool(image_of, draw_probability_map, found, media_type)
        return Response(drawn, media_type=media_type)
    height, width = found["probabilities"].shape
    counted = {
        "height": height,
        "width": width,
        "threshold": query.threshold,
        "masks": {name: each | {"dice": _dice(each)} for name, each in found["counts"].items()},
    }
    return Response(orjson.dumps(counted), media_type=JSON)


def _read(body: Body, query: MapQuery, settings: Settings) -> dict[str, Any]:
    """Return the figure's input, or raise the rule that the body breaks."""
    document = object_of(read_json(body.data, settings.max_rows + 100))
    reject_unknown(document, tuple(MapBody.model_fields))
    probabilities = _pixels(document.get("probabilities"), "/probabilities", None)
    if not ((probabilities >= 0.0) & (probabilities <= 1.0)).all():
        raise CalibrationInputError.at(
            "/probabilities", "range", "Received a value outside [0, 1]; expected probabilities."
        )
    shape = probabilities.shape
    masks = {
        name: _mask(each, pointer, shape) for name, (each, pointer) in _masks(document).items()
    }
    background = document.get("image")
    return {
        "probabilities": probabilities,
        "masks": masks,
        "image": None if background is None else _pixels(background, "/image", shape),
        "threshold": query.threshold,
        "class": query.class_,
        "counts": {
            name: {
                region: int(each.sum())
                for region, each in regions(probabilities, mask, query.threshold).items()
            }
            for name, mask in masks.items()
        },
    }


def _reject_long_outlines(found: dict[str, Any]) -> None:
    """Reject a figure whose outlines would take seconds to draw."""
    length = 0
    for mask in found["masks"].values():
        length += outline_length(found["probabilities"], mask, found["threshold"])
    if length > MAX_OUTLINE:
        detail = (
            f"Received regions whose outlines have {length:,} sides of pixels; expected at most {MAX_OUTLINE:,} in a "
            "figure. Send fewer masks or a part of the image, or ask for application/json."
        )
        raise CalibrationInputError.at("/probabilities", "outline", detail)


def _masks(document: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    one, several = document.get("mask"), document.get("masks")
    if (one is None) == (several is None):
        detail = "Received both mask and masks, or none; expected one of them: true and false positives need a reference."
        raise CalibrationInputError.at("/mask", "missing", detail)
    if one is not None:
        return {"reference": (one, "/mask")}
    if not isinstance(several, dict) or not 1 <= len(several) <= MAX_MASKS:
        raise CalibrationInputError.at(
            "/masks",
            "length",
            f"Received another value; expected an object of 1 to {MAX_MASKS} masks by name.",
        )
    if not all(0 < len(name) <= MAX_NAME and name.isprintable() for name in several):
        detail = f"Received an invalid name; expected 1 to {MAX_NAME} printable characters."
        raise CalibrationInputError.at("/masks", "name", detail)
    return {name: (each, f"/masks/{i}") for i, (name, each) in enumerate(several.items())}


def _mask(value: Any, pointer: str, shape: tuple[int, ...]) -> Pixels:
    mask = _pixels(value, pointer, shape)
    if not ((mask == 0.0) | (mask == 1.0)).all():
        raise CalibrationInputError.at(
            pointer, "one_of", "Received a value other than 0 and 1; expected a mask of 0 and 1."
        )
    return mask


def _pixels(value: Any, pointer: str, shape: tuple[int, ...] | None) -> Pixels:
    """Return rows of numbers as float64 (height, width)."""
    rows = value if isinstance(value, list) else []
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    if not 0 < width <= MAX_SIDE or len(rows) > MAX_SIDE or len(rows) * width > MAX_PIXELS:
        detail = f"Received another value; expected rows of numbers, at most {MAX_SIDE} by {MAX_SIDE} and {MAX_PIXELS:,} pixels."
        raise CalibrationInputError.at(pointer, "shape", detail)
    if not all(isinstance(row, list) and len(row) == width for row in rows):
        raise CalibrationInputError.at(
            pointer,
            "shape",
            f"Received rows of different lengths; expected {width} numbers in each, as in the first.",
        )
    if shape is not None and (len(rows), width) != shape:
        detail = (
            f"Received {len(rows)} by {width}; expected {shape[0]} by {shape[1]}, as probabilities."
        )
        raise CalibrationInputError.at(pointer, "shape", detail)
    if not all(type(each) in (int, float) for row in rows for each in row):
        raise CalibrationInputError.at(
            pointer, "number", "Received a pixel that is not a number; expected numbers."
        )
    found: Pixels = np.array(rows, np.float64)
    if not np.isfinite(found).all():
        raise CalibrationInputError.at(
            pointer, "number", "Received a pixel that is not finite; expected finite numbers."
        )
    return found


def _dice(counts: dict[str, int]) -> float | None:
    size = 2 * counts["true_positive"] + counts["false_negative"] + counts["false_positive"]
    return 2.0 * counts["true_positive"] / size if size else None
