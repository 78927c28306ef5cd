"""How the cells of a file are written, where its ending does not say it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calibrant.input.cell_texts import BLANK, MISSING_TEXTS, number_of


@dataclass(frozen=True)
class TextFormat:
    """What the options say about the cells.

    Attributes
    ----------
    na : texts that mean no value, besides those of the kind of file
    delimiter : between the cells of text files; None for that of the ending
    has_decimal_comma : whether numbers in text files are written with a comma
    """

    na: frozenset[str] = frozenset()
    delimiter: str | None = None
    has_decimal_comma: bool = False

    def number(self, cell: str) -> float:
        """Return the number in a cell of a text file.

        Raises
        ------
        ValueError
            It is no number.

        Examples
        --------
        >>> TextFormat(has_decimal_comma=True).number("0,25")
        0.25
        """
        if not self.has_decimal_comma:
            return number_of(cell)
        if "." in cell:
            raise ValueError(f"no decimal comma: {cell!r}")
        return number_of(cell.replace(",", "."))

    @property
    def missing_texts(self) -> frozenset[str]:
        """Texts that mean no value in a file of texts."""
        return MISSING_TEXTS | self.na

    @property
    def missing_beside_nulls(self) -> frozenset[str]:
        """Texts that mean no value in a file that has nulls."""
        return BLANK | self.na

    def also_classes(self, classes: Iterable[str]) -> list[str]:
        """Return the names of classes that `--na` also names."""
        return [name for name in classes if name in self.na]


DEFAULT_FORMAT = TextFormat()


def na_texts(option: str | None) -> frozenset[str]:
    """Return the texts of `--na`, separated by commas.

    >>> sorted(na_texts("NA, nan"))
    ['NA', 'nan']
    """
    return frozenset(each.strip() for each in (option or "").split(",")) - BLANK
