"""Results as tables: the columns are the same whatever the query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "number", "integer", "flag", "time", "bytes"]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A result as a table.

    Attributes
    ----------
    columns : their kinds by name
    rows : the values by column of each row, from the plain values of a result; missing ones are blank
    """

    columns: Mapping[str, Kind]
    rows: Callable[[Values], Iterable[Values]]


def with_ends(values: Values) -> Values:
    """Return values whose intervals are two columns each.

    >>> with_ends({"interval": [0.1, 0.2]})
    {'interval': [0.1, 0.2], 'interval_low': 0.1, 'interval_high': 0.2}
    """
    ends = {
        f"{prefix}{end}": value
        for name, prefix in (("interval", "interval_"), ("difference_interval", "difference_"))
        if values.get(name)
        for end, value in zip(("low", "high"), values[name], strict=True)
    }
    return {**values, **ends}
