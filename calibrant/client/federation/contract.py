"""What a site shares with a centre: models, slices, form and minimum counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from calibrant.core.errors import CalibrationInputError
from calibrant.core.panes_by_key import duration_seconds
from calibrant.input.names import IDENTIFIER, IDENTIFIER_RULE, name_of

PANE, HISTOGRAM = "pane", "histogram"
MIN_MINIMUM, DEFAULT_MINIMUM = 2, 20
MAX_MODELS = 1000


@dataclass(frozen=True)
class ModelTerms:
    """What is shared of one model.

    Attributes
    ----------
    model, to : its id at the site and at the centre. Default of `to`: the same
    slices : `key:value`, all of one key; their rows are shared, each slice as such. Empty: all rows, without slices.
    share : `pane`: every sum, without rows and names. `histogram`: the reliability histogram of the score, and counts.
    bins : of the histogram: a multiple of the grid of the centre's model
    minimum : labelled units that a total must have, and units by which two totals must differ
    after : time after the end of a day before it is shared, as ISO 8601 duration; days of a model with a label horizon wait until they
        are sealed
    """

    model: str
    to: str
    slices: tuple[str, ...] = ()
    share: str = PANE
    bins: int | None = None
    minimum: int = DEFAULT_MINIMUM
    after: str = "PT6H"

    @property
    def after_s(self) -> int:
        """`after` in seconds."""
        return duration_seconds(self.after)

    @property
    def form(self) -> str:
        """Terms that must stay the same while the centre has totals: their model, their rows and their form."""
        rows = ",".join(self.slices) or "all rows"
        return f"{self.share} {self.bins or ''} of {rows} to {self.to}".replace("  ", " ")

    @classmethod
    def read(cls, given: Any, pointer: str) -> Self:
        """Read the terms of a model."""
        _check(isinstance(given, Mapping), pointer, "object", "an object")
        _reject_unknown(given, {each.name for each in fields(cls)}, pointer)
        terms = cls(**{"to": given.get("model"), **given, "slices": tuple(given.get("slices", ()))})
        for name in ("model", "to"):
            _check_name(getattr(terms, name), f"{pointer}/{name}")
        terms._check_slices(pointer)
        _check(
            terms.share in (PANE, HISTOGRAM), f"{pointer}/share", "value", f"{PANE} or {HISTOGRAM}"
        )
        is_number = type(terms.bins) is int and terms.bins > 0
        _check(
            is_number if terms.share == HISTOGRAM else terms.bins is None, f"{pointer}/bins", "bins",
            f"a multiple of the grid of the centre's model with share {HISTOGRAM}, else none",
        )  # fmt: skip
        _check(
            type(terms.minimum) is int and terms.minimum >= MIN_MINIMUM, f"{pointer}/minimum", "minimum",
            f"an integer of {MIN_MINIMUM} or more",
        )  # fmt: skip
        _check(isinstance(terms.after, str), f"{pointer}/after", "duration", "an ISO 8601 duration")
        duration_seconds(terms.after)
        return terms

    def _check_slices(self, pointer: str) -> None:
        """Slices that overlap, or a slice and all rows, would show the small rest between them."""
        keys = set()
        for i, each in enumerate(self.slices):
            key, colon, value = str(each).partition(":")
            valid = (
                isinstance(each, str) and colon and name_of(key) == key and name_of(value) == value
            )
            _check(bool(valid), f"{pointer}/slices/{i}", "slice", "key:value")
            keys.add(key)
        _check(
            len(keys) <= 1 and len(set(self.slices)) == len(self.slices), f"{pointer}/slices", "one_key",
            "different values of one key. Differences of overlapping slices would show small groups",
        )  # fmt: skip


@dataclass(frozen=True)
class Contract:
    """What a site shares.

    Attributes
    ----------
    site : name of the site: the source of its totals
    site_slice : slice key under which the centre finds the site's totals; None for none
    models : terms of each shared model
    """

    site: str
    models: tuple[ModelTerms, ...]
    site_slice: str | None = "site"

    @classmethod
    def read(cls, given: Any) -> Self:
        """Read a contract from JSON values.

        Raises
        ------
        CalibrationInputError
            A field is unknown, missing or not valid; with its pointer and rule.
        """
        _check(isinstance(given, Mapping), "", "object", "an object")
        _reject_unknown(given, {each.name for each in fields(cls)}, "")
        _check_name(given.get("site"), "/site")
        listed = given.get("models")
        _check(
            isinstance(listed, list) and 0 < len(listed) <= MAX_MODELS, "/models", "list",
            f"a list of 1 to {MAX_MODELS} models",
        )  # fmt: skip
        models = tuple(ModelTerms.read(each, f"/models/{i}") for i, each in enumerate(listed))
        for name in ("model", "to"):
            n_names = len({getattr(each, name) for each in models})
            _check(n_names == len(models), "/models", "unique", f"another {name} in each entry")
        site_slice = given.get("site_slice", "site")
        if site_slice is not None:
            _check_name(site_slice, "/site_slice")
            keys = {each.slices[0].partition(":")[0] for each in models if each.slices}
            _check(site_slice not in keys, "/site_slice", "unique", "a key that no slice has")
        return cls(given["site"], models, site_slice)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a contract from a JSON file."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CalibrationInputError.at("", "json", f"{path} is not JSON: {error}") from error
        return cls.read(found)


def _check(is_valid: bool, pointer: str, rule: str, expected: str) -> None:
    if not is_valid:
        detail = f"Received another value; expected {expected}."
        raise CalibrationInputError.at(pointer, rule, detail)


def _check_name(name: Any, pointer: str) -> None:
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        detail = f"Received {str(name)[:40]!r}; expected {IDENTIFIER_RULE}"
        raise CalibrationInputError.at(pointer, "id", detail)


def _reject_unknown(given: Mapping[str, Any], known: set[str], pointer: str) -> None:
    for name in given.keys() - known:
        listed = ", ".join(sorted(known))
        detail = f"Received {str(name)[:60]!r}; expected one of {listed}."
        raise CalibrationInputError.at(f"{pointer}/{str(name)[:60]}", "unknown_field", detail)
