"""How the cells of a file are written, where its ending does not say it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calibrant.input.missing_texts import BLANK, MISSING_TEXTS


@dataclass(frozen=True)
class TextFormat:
    """What the options say about the cells.

    Attributes
    ----------
    na : texts that mean no value, besides those of the kind of file
    """

    na: frozenset[str] = frozenset()

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
