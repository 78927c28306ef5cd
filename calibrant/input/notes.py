"""What was altered in a batch as it was read, and what looks unusual: results state both."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.core.documents import Extra, Result

POSSIBLY_ONE_HOT = "possibly_one_hot"


@dataclass(frozen=True)
class InputNotes:
    """Alterations of the scores of a batch, and warnings.

    Attributes
    ----------
    n_adjusted : values outside [0, 1] by rounding, which were set to the bound
    n_normalised : rows that were divided by their sum, beyond the tolerance of every row
    largest_deviation : of a divided row's sum from 1
    warnings : codes, such as `possibly_one_hot`
    """

    n_adjusted: int = 0
    n_normalised: int = 0
    largest_deviation: float = 0.0
    warnings: tuple[str, ...] = ()

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


NO_NOTES = InputNotes()
