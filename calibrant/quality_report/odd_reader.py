"""The one reader who differs from the others: by how much, in which class, and how the model agrees with each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.figures.base import class_named
from calibrant.figures.numbers import percent, plain_number, plain_numbers

KAPPA = "Kappa is 1 where readers always agree, and 0 by chance."


def odd_reader_sentences(
    odd: Mapping[str, Any] | None, errors: Mapping[str, float | None], classes: Sequence[str]
) -> list[str]:
    """Return how a reader differs from the others; nothing without one.

    Parameters
    ----------
    odd : as `odd_rater` returns it
    errors : of the model against each reader, by name

    >>> odd = {"name": "novak", "kappa": 0.58, "kappa_of_others": 0.89, "shares": [0.68, 0.32], "shares_of_others": [0.48, 0.52]}
    >>> for each in odd_reader_sentences(odd, {"ito": 0.037, "klein": 0.033, "novak": 0.091}, ["benign", "malignant"]): print(each)
    novak differs from the other readers: kappa 0.580 with them, 0.890 among themselves.
    novak gave benign in 68 % of the predictions, the others in 48 %.
    The model's error is 0.091 against novak, and 0.033 to 0.037 against the others.
    """
    if odd is None:
        return []
    name, kappas = odd["name"], plain_numbers([odd["kappa"], odd["kappa_of_others"]])
    first = f"{name} differs from the other readers: kappa {kappas[0]} with them, {kappas[1]} among themselves."
    return [first, *_shares(odd, classes), *_errors(name, errors)]


def _shares(odd: Mapping[str, Any], classes: Sequence[str]) -> list[str]:
    """Return the class in whose share of labels the reader differs most from the others."""
    own, others = odd.get("shares"), odd.get("shares_of_others")
    if not own or not others:
        return []
    k = max(range(len(own)), key=lambda place: abs(own[place] - others[place]))
    mine, theirs = percent(own[k]), percent(others[k])
    if mine == theirs:
        return [
            f"{odd['name']} gave each label about as often as the others, but to other predictions."
        ]
    label = class_named(k, list(classes))
    return [f"{odd['name']} gave {label} in {mine} of the predictions, the others in {theirs}."]


def _errors(name: str, errors: Mapping[str, float | None]) -> list[str]:
    others = [each for other, each in errors.items() if other != name and each is not None]
    own = errors.get(name)
    if own is None or not others:
        return []
    low, high = plain_number(min(others)), plain_number(max(others))
    between = low if low == high else f"{low} to {high}"
    return [
        f"The model's error is {plain_number(own)} against {name}, and {between} against the others."
    ]
