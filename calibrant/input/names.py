"""Names: what identifies a model or a batch, and what people call their patients, images, readers and subgroups.

A name is any text that prints on one line. It is stored in Unicode's normal form C, so that two ways to write the same
accent are one name, and an integer is the text of its digits, so that 1 and "1" are one name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError
from calibrant.input.value_checks import kind_of

# Identifiers are part of paths, where . and .. are folders: a client would change the path of one that ends in them.
IDENTIFIER = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._:@-]{1,128}")
IDENTIFIER_RULE = "1 to 128 characters of A-Za-z0-9._:@-, and neither . nor .."
MAX_LENGTH = 256
NAME_RULE = f"a text of 1 to {MAX_LENGTH} characters without control characters, or an integer"
# Longer texts are not normalised: no text of so many characters becomes one of `MAX_LENGTH`.
_MAX_DECOMPOSED = 8 * MAX_LENGTH
_MAX_BITS = 512
# Names are encoded in paths, but a client resolves these two before it sends them.
_FOLDERS = (".", "..")
_NOT_PRINTED = ("Cc", "Cs")  # control characters, and halves of surrogate pairs


def fitted(name: str) -> str:
    """Return a name, or `h.` and 32 digits of its BLAKE2b hash if it does not fit the rule for ids.

    >>> fitted("chatcmpl-8f3"), fitted("req/7")
    ('chatcmpl-8f3', 'h.3a362af6e3dd025ec625da4f5b87f05f')
    """
    if IDENTIFIER.fullmatch(name):
        return name
    return f"h.{blake2b(name.encode(), digest_size=16).hexdigest()}"


def name_of(value: Any) -> str | None:
    """Return the name that a value states; None where it states none.

    Examples
    --------
    >>> name_of("Müller, A"), name_of(12), name_of(12.0), name_of("")
    ('Müller, A', '12', None, None)
    """
    if isinstance(value, str):
        return _name_of_text(str(value))
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        return str(number) if number.bit_length() <= _MAX_BITS else None
    return None


def checked_name(value: Any, pointer: str) -> str:
    """Return the name that a value states.

    Raises
    ------
    CalibrationInputError
        It states none.
    """
    name = name_of(value)
    if name is None:
        raise CalibrationInputError.at(pointer, "name", invalid_name(value))
    return name


def names_of(values: Sequence[Any]) -> list[str | None]:
    """Return the name of each value, None where there is none."""
    if are_plain(values):
        return list(values)
    if set(map(type, values)) == {int} and max(map(abs, values)) < 2**_MAX_BITS:
        return list(map(str, values))
    return [name_of(value) for value in values]


def are_plain(values: Sequence[Any]) -> bool:
    """Return whether all values are names of printable ASCII, which need no normal form."""
    if set(map(type, values)) != {str}:
        return False
    lengths = list(map(len, values))
    joined = "".join(values)
    return (
        min(lengths) > 0
        and max(lengths) <= MAX_LENGTH
        and joined.isascii()
        and joined.isprintable()
        and not any(folder in values for folder in _FOLDERS)
    )


def are_names(values: Sequence[Any]) -> bool:
    """Return whether all values are names in the form in which they are stored."""
    return are_plain(values) or all(
        type(value) is str and name_of(value) == value for value in values
    )


def invalid_name(value: Any) -> str:
    """Return why a value is no name. It is not quoted: it may name a patient.

    Examples
    --------
    >>> invalid_name("")
    'Received an empty text; expected a text of 1 to 256 characters without control characters, or an integer.'
    """
    return f"Received {_described(value)}; expected {NAME_RULE}.{_advice(value)}"


def combination(pairs: Iterable[tuple[str, str]]) -> str:
    """Write slices as one text, with commas in names encoded.

    Examples
    --------
    >>> combination([("reader", "b"), ("site", "Bern, Insel")]), slices_of("site:Bern%2C Insel")
    ('reader:b,site:Bern%2C Insel', {'site': 'Bern, Insel'})
    """
    return ",".join(f"{_encoded(key)}:{_encoded(value)}" for key, value in pairs)


def slices_of(text: str) -> dict[str, str]:
    """Return the slices of a text that `combination` wrote."""
    pairs = (each.split(":", 1) for each in text.split(",")) if text else ()
    return {_decoded(key): _decoded(value) for key, value in pairs}


def _encoded(name: str) -> str:
    return name.replace("%", "%25").replace(",", "%2C")


def _decoded(text: str) -> str:
    return text.replace("%2C", ",").replace("%25", "%")


def _name_of_text(text: str) -> str | None:
    if not (text.isascii() and text.isprintable()):
        if len(text) > _MAX_DECOMPOSED or not _is_printed(text):
            return None
        text = unicodedata.normalize("NFC", text)
    return text if 0 < len(text) <= MAX_LENGTH and text not in _FOLDERS else None


def _is_printed(text: str) -> bool:
    return not any(unicodedata.category(each) in _NOT_PRINTED for each in text)


def _described(value: Any) -> str:
    if not isinstance(value, str):
        return kind_of(value)
    if not value:
        return "an empty text"
    if value in _FOLDERS:
        return f"{value!r}, which a path resolves as a folder"
    return (
        f"a text of {len(value)} characters"
        if _is_printed(value)
        else "a text with a control character"
    )


def _advice(value: Any) -> str:
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return " Convert whole numbers to integers." if is_whole else ""
