"""Confidence histograms in requests: written out as arrays, or packed by the library."""

from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.segmentation.confidence_histogram import ConfidenceHistogram
from calibrant.segmentation.histogram_updates import FIELDS, read_arrays
from calibrant_server.service.ingest.packed import UnpackingBudget, decoded, unpacked


def read_confidence(
    fields: dict[str, Any],
    n_classes: int | None = None,
    pointer: str = "",
    budget: UnpackingBudget | None = None,
) -> ConfidenceHistogram:
    """Return the confidence histogram of `fields`: their arrays, or what `packed` holds.

    Raises
    ------
    CalibrationInputError
        Both or neither is there, or as `read_arrays`, or the packed one is damaged or of other classes.
    BodyTooLarge
        What is packed is larger than `budget` allows. Default: a budget of its own.
    """
    written = [name for name in (*FIELDS, "exact") if fields.get(name) is not None]
    if fields.get("packed") is None:
        return read_arrays(fields, n_classes, pointer)
    if written:
        detail = f"Received packed and {', '.join(written)}; expected packed alone, which contains them. Leave the others out."
        raise CalibrationInputError.at(f"{pointer}/packed", "one_of", detail)
    place = f"{pointer}/packed"
    data = decoded(fields["packed"], place)
    found, content_bytes = unpacked(ConfidenceHistogram.packed_size, data, place)
    if n_classes is not None and found != n_classes:
        detail = f"Received a histogram of {found} classes; expected {n_classes}, as the model has."
        raise CalibrationInputError.at(place, "shape", detail)
    (budget or UnpackingBudget()).take(data, content_bytes)
    return unpacked(ConfidenceHistogram.unpack, data, place)
