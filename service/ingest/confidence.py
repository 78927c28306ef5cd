"""Confidence histograms in requests: written out as arrays, or packed by the library."""

import base64
from collections.abc import Callable
from typing import Any, TypeVar

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.packing import PackingError
from calibrant.segmentation.confidence_histogram import ConfidenceHistogram
from calibrant.segmentation.histogram_updates import FIELDS, read_arrays

T = TypeVar("T")


def read_confidence(
    fields: dict[str, Any], n_classes: int | None = None, pointer: str = ""
) -> ConfidenceHistogram:
    """Return the confidence histogram of `fields`: their arrays, or what `packed` holds.

    Raises
    ------
    CalibrationInputError
        Both or neither is there, or as `read_arrays`, or the packed one is damaged or of other classes.
    """
    written = [name for name in (*FIELDS, "exact") if fields.get(name) is not None]
    if fields.get("packed") is None:
        return read_arrays(fields, n_classes, pointer)
    if written:
        detail = f"packed holds everything; leave out {', '.join(written)}."
        raise CalibrationInputError([Violation(f"{pointer}/packed", "one_of", detail)])
    histogram = read_packed(fields["packed"], ConfidenceHistogram.unpack, f"{pointer}/packed")
    if n_classes is not None and histogram.n_classes != n_classes:
        detail = f"the histogram is of {histogram.n_classes} classes, the model has {n_classes}."
        raise CalibrationInputError([Violation(f"{pointer}/packed", "shape", detail)])
    return histogram


def read_packed(packed: Any, unpack: Callable[[bytes], T], pointer: str) -> T:
    """Return what `unpack` makes of base64."""
    if not isinstance(packed, str):
        raise CalibrationInputError([Violation(pointer, "base64", "packed must be base64.")])
    try:
        return unpack(base64.b64decode(packed, validate=True))
    except PackingError as error:
        raise CalibrationInputError([Violation(pointer, "packed", str(error))]) from error
    except ValueError as error:
        raise CalibrationInputError([Violation(pointer, "base64", str(error))]) from error
