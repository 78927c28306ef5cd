"""One update as packed bytes: histograms of each kind, and panes that were filled at the edge."""

from dataclasses import replace
from typing import Any

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.histogram import Histogram
from calibrant.core.pane import Pane
from calibrant.core.pane_envelope import PaneEnvelope
from calibrant.core.pane_validation import check_pane
from calibrant.segmentation.histogram_updates import updates_of
from calibrant_server.service.ingest.confidence import read_confidence
from calibrant_server.service.ingest.model_rules import (
    PIXELS,
    SEGMENTATION,
    reject_unitless_update,
)
from calibrant_server.service.ingest.packed import UnpackingBudget, decoded, unpacked
from calibrant_server.workers.store.model_config import ModelConfig


def pack_histogram(
    fields: dict[str, Any], config: ModelConfig, pointer: str, budget: UnpackingBudget
) -> list[bytes]:
    if isinstance(fields.get("class"), str) and config.classes:
        fields = {**fields, "class": _class_index(fields["class"], config.classes, pointer)}
    reject_unitless_update(fields, config, pointer)
    return [Histogram.from_fields(fields, config.spec(), pointer).pack()]


def pack_confidence(
    fields: dict[str, Any], config: ModelConfig, pointer: str, budget: UnpackingBudget
) -> list[bytes]:
    reject_unitless_update(fields, config, pointer)
    histogram = read_confidence(fields, config.n_classes, pointer, budget)
    # One empty histogram of the same kind says whether raters, units and case are what they must be.
    plain = {name: fields[name] for name in ("raters", "n_units", "unit", "case") if name in fields}
    bins = config.spec().class_grid.cells
    nothing = dict.fromkeys(("count", "sum_confidence", "sum_correct"), [0.0] * bins)
    header = Histogram.from_fields(
        {"kind": "class", "class": 0, "bins": bins} | nothing | plain, config.spec(), pointer
    )
    of = {"n_units": header.n_units, "unit": header.unit, "case": header.case}
    try:
        return [each.pack() for each in updates_of(histogram, config.spec(), header.policy, **of)]
    except CalibrationInputError as error:
        violations = [replace(each, pointer=pointer + each.pointer) for each in error.violations]
        raise CalibrationInputError(violations) from error


def _class_index(name: str, classes: list[str], pointer: str) -> int:
    if name in classes:
        return classes.index(name)
    detail = f"Received class {name[:40]!r}; expected a class of this model."
    raise CalibrationInputError.at(f"{pointer}/class", "unknown_class", detail)


def pack_pane(
    fields: dict[str, Any], config: ModelConfig, pointer: str, budget: UnpackingBudget
) -> list[bytes]:
    place = f"{pointer}/packed"
    data = decoded(fields.get("packed"), place)
    envelope = unpacked(PaneEnvelope.read, data, place)
    if envelope.spec != config.spec():
        detail = f"Received a pane of {envelope.spec.to_dict()}; expected the model's {config.spec().to_dict()}."
        raise CalibrationInputError.at(place, "spec", detail)
    budget.take(data, unpacked(_content_bytes, envelope, place))
    pane = unpacked(_pane_in, envelope, place)
    if config.task == SEGMENTATION and pane.unit_source not in (None, "named"):
        detail = f"{PIXELS} Name units or cases when you fill the pane."
        raise CalibrationInputError.at(place, "units_required", detail)
    try:
        check_pane(pane, config.spec())
    except CalibrationInputError as error:
        violations = [
            Violation(f"{pointer}{each.pointer}", each.rule, each.detail)
            for each in error.violations
        ]
        raise CalibrationInputError(violations) from error
    return [pane.pack()]


def reject_sampled_total(packed: bytes, pointer: str) -> None:
    """Reject a running total with a sample of rows: the rows of the total that it replaces could not be removed."""
    if "sample" in PaneEnvelope.read(packed).parts:
        detail = "Received a running total with a stored sample; expected none. Fill the pane with sample_bytes=0."
        raise CalibrationInputError.at(f"{pointer}/packed", "total_with_sample", detail)


def _content_bytes(envelope: PaneEnvelope) -> int:
    return envelope.content_bytes


def _pane_in(envelope: PaneEnvelope) -> Pane:
    return Pane.from_parts(envelope.spec, envelope.parts)


PACKERS = {"confidence": pack_confidence, "pane": pack_pane}
