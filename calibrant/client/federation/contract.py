"""What a site shares with a centre: models, slices and minimum counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from calibrant.core.errors import CalibrationInputError
from calibrant.core.panes_by_key import duration_seconds
from calibrant.input.names import IDENTIFIER, IDENTIFIER_RULE, combination, name_of

MIN_MINIMUM, DEFAULT_MINIMUM = 2, 20
MAX_MODELS = 1000


@dataclass(frozen=True)
class ModelTerms:
    """What is shared of one model.

    Attributes
    ----------
    model, to : its id at the site and at the centre. Default of `to`: the same
    slices : `key:value`, all of one key; their rows are shared, each slice as such. Empty: all rows, without slices.
    minimum : labelled units that a total must have
    after : time after the end of a day before it is shared, as ISO 8601 duration; days of a model with a label horizon wait until they
        are sealed
    """

    model: str
    to: str
    slices: tuple[str, ...] = ()
    minimum: int = DEFAULT_MINIMUM
    after: str = "P7D"

    @property
    def form(self) -> str:
        """Terms that must stay the same while the centre has totals: their rows and their model."""
        return f"{','.join(self.slices) or 'all rows'} to {self.to}"

    @classmethod
    def read(cls, given: Any, pointer: str) -> Self:
        """Read the terms of a model."""
        _reject_unknown(given, cls, pointer)
        slices = given.get("slices", ())
        terms = cls(**{"model": None, "to": given.get("model"), **given, "slices": tuple(slices)})
        for name in ("model", "to"):
            _check_name(getattr(terms, name), f"{pointer}/{name}")
        keys = {_slice_key(each, f"{pointer}/slices/{i}") for i, each in enumerate(slices)}
        # Slices that overlap, or a slice and all rows, would show the small rest between them.
        if len(keys) > 1 or len(set(slices)) < len(slices):
            _reject(slices, "different values of one key", f"{pointer}/slices", "one_key")
        if type(terms.minimum) is not int or terms.minimum < MIN_MINIMUM:
            expected = f"an integer of {MIN_MINIMUM} or more"
            _reject(terms.minimum, expected, f"{pointer}/minimum", "minimum")
        duration_seconds(str(terms.after))
        return terms


@dataclass(frozen=True)
class Contract:
    """What a site shares.

    Attributes
    ----------
    site : name of the site: the source of its totals
    models : terms of each shared model
    site_slice : slice key under which the centre finds the site's totals; None for none
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
        _reject_unknown(given, cls, "")
        _check_name(given.get("site"), "/site")
        listed = given.get("models")
        if not isinstance(listed, list) or not 0 < len(listed) <= MAX_MODELS:
            _reject(listed, f"a list of 1 to {MAX_MODELS} models", "/models", "list")
        models = tuple(ModelTerms.read(each, f"/models/{i}") for i, each in enumerate(listed))
        for name in ("model", "to"):
            if len({getattr(each, name) for each in models}) < len(models):
                _reject("one twice", f"another {name} in each entry", "/models", "unique")
        site_slice = given.get("site_slice", "site")
        if site_slice is not None:
            _check_name(site_slice, "/site_slice")
        if any(each.startswith(f"{site_slice}:") for terms in models for each in terms.slices):
            _reject(site_slice, "a key that no slice has", "/site_slice", "unique")
        return cls(given["site"], models, site_slice)

    def combination(self, slice_: str) -> str:
        """Return the slices under which the centre finds a slice of the site, or all of its rows."""
        site = {} if self.site_slice is None else {self.site_slice: self.site}
        return combination((site | dict([slice_.split(":", 1)] if slice_ else ())).items())

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a contract from a JSON file."""
        try:
            return cls.read(json.loads(path.read_text(encoding="utf-8")))
        except json.JSONDecodeError as error:
            raise CalibrationInputError.at("", "json", f"{path} is not JSON: {error}") from error


def _slice_key(given: Any, pointer: str) -> str:
    key, colon, value = str(given).partition(":")
    if not (isinstance(given, str) and colon and name_of(key) == key and name_of(value) == value):
        _reject(given, "key:value", pointer, "slice")
    return key


def _check_name(name: Any, pointer: str) -> None:
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        _reject(name, IDENTIFIER_RULE.rstrip("."), pointer, "id")


def _reject_unknown(given: Any, form: type[Any], pointer: str) -> None:
    if not isinstance(given, Mapping):
        _reject(given, "an object", pointer, "object")
    known = [each.name for each in fields(form)]
    for name in given.keys() - set(known):
        expected = f"one of {', '.join(known)}"
        _reject(name, expected, f"{pointer}/{name[:60]}", "unknown_field")


def _reject(given: Any, expected: str, pointer: str, rule: str) -> None:
    detail = f"Received {str(given)[:60]!r}; expected {expected}."
    raise CalibrationInputError.at(pointer, rule, detail)
