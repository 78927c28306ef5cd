"""What was altered in a batch as it was read, and what looks unusual: results state both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.core.documents import Extra, Result

POSSIBLY_ONE_HOT = "possibly_one_hot"
_WARNINGS = {
    POSSIBLY_ONE_HOT: "every row of labels has one 1 and else 0 (possibly_one_hot): if that marks the class, pass its index; "
    "as they are, they count as ratings of the classes 0 and 1"
}


@dataclass(frozen=True)
class InputNotes:
    """Alterations of the scores of a batch, and warnings.

    Attributes
    ----------
    n_adjusted : values outside [0, 1] by rounding, which were set to the bound
    n_normalised : rows that were divided by their sum, beyond the tolerance of every row
    largest_deviation : of a divided row's sum from 1
    warnings : codes, such as `possibly_one_hot`
    has_shares : whether labels are shares
    per_rating : number of counts of one rating; more than 1 for shares without a number of ratings
    """

    n_adjusted: int = 0
    n_normalised: int = 0
    largest_deviation: float = 0.0
    warnings: tuple[str, ...] = ()
    has_shares: bool = False
    per_rating: int = 1

    def counted(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return numbers of rows with the number of ratings that they stand for."""
        return {**counts, "n_ratings": counts["n_ratings"] // self.per_rating}

    def to_dict(self) -> Extra:
        """Return what is not as usual, by name; nothing for a batch as most are."""
        found: Extra = {}
        if self.n_adjusted:
            found["n_adjusted"] = self.n_adjusted
        if self.n_normalised:
            found |= {
                "n_normalised": self.n_normalised,
                "largest_deviation": self.largest_deviation,
            }
        if self.warnings:
            found["warnings"] = list(self.warnings)
        return found

    def added_to(self, result: Result) -> Result:
        """Return a result with these alterations, and with these warnings after its own."""
        found = self.to_dict()
        own = result.get("warnings") or []
        return result | found | ({"warnings": [*own, *self.warnings]} if self.warnings else {})

    def sentences(self) -> list[str]:
        """Return what is not as usual, a sentence each."""
        return sentences_of(self.to_dict())


def sentences_of(about: Mapping[str, Any]) -> list[str]:
    """Return what the notes in a result say.

    Examples
    --------
    >>> sentences_of({"n_adjusted": 2, "n": 5})
    ['2 values outside [0, 1] by rounding were set to the bound']
    """
    found = []
    if about.get("n_adjusted"):
        found.append(
            f"{about['n_adjusted']:,} values outside [0, 1] by rounding were set to the bound"
        )
    if about.get("n_normalised"):
        most = about["largest_deviation"]
        found.append(
            f"{about['n_normalised']:,} rows were divided by their sum, off from 1 by up to {most:.3g}"
        )
    found += [_WARNINGS[each] for each in about.get("warnings") or () if each in _WARNINGS]
    return found


NO_NOTES = InputNotes()
