"""Results as frozen dataclasses whose fields have a type, a unit and one sentence.

A result prints itself, becomes plain values for JSON, and is read from them. The service derives the schema of its response from the same
class; the client reads the response into it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Reader = Callable[[Any, str], Any]
OMITTED = "omitted"


_REASONS = ("reason", "detail", "interval_reason", "null_reason", "difference_reason")
# What every estimate has; null where there is none.
ALWAYS = ("value", "interval", "null_mean", "null_q95", "above_null", "n", "reason")
ESTIMATE = frozenset({
    *ALWAYS, *_REASONS, "p_value", "corrected", "bias", "range", "range_caution", "tolerance_verdict",
    "against", "difference", "difference_interval",
})  # fmt: skip


def says(sentence: str, default: Any = MISSING, **limits: Any) -> Any:
    """Declare a field with its sentence.

    Parameters
    ----------
    sentence : what the field contains, with its unit
    default : its value where none is given; required without one
    limits : `ge`, `gt`, `le`, `lt`, `max_length`, `pattern`, `allow_inf_nan` of a parameter
    """
    return field(default=default, metadata={"description": sentence, **limits})


def may_say(sentence: str = "") -> Any:
    """Declare a field that is left out of the plain values where it is None."""
    described = {"description": sentence} if sentence else {}
    return field(default=None, metadata={**described, OMITTED: True})


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """A result of the library, which the service returns and the client reads under the same names.

    Examples
    --------
    >>> @dataclass(frozen=True, kw_only=True, repr=False)
    ... class Share(Result):
    ...     value: float = says("Share of labelled predictions, from 0 to 1.")
    ...     reason: str | None = may_say("Why there is no value.")
    >>> Share(value=0.25).to_dict()
    {'value': 0.25}
    >>> found = Share.from_dict({"model": "m", "value": 0.25})
    >>> found, found.model, found.to_dict()
    (Share(value=0.25), 'm', {'model': 'm', 'value': 0.25})
    """

    @property
    def about(self) -> dict[str, Any]:
        """What a response adds to the result: model, window, state version."""
        found: dict[str, Any] = vars(self).get("_about", {})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, as the service returns them."""
        found, given = dict(self.about), vars(self).get("_given")
        for each in self._fields():
            value = getattr(self, each.name)
            is_shown = not each.is_omitted if given is None else each.key in given
            if is_shown or value is not None:
                found[each.key] = value if each.read is None else plain(value)
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the result that `to_dict` described, or that the service returned; what it lacks is None."""
        rest, given = dict(values), {}
        for each in cls._fields():
            value = rest.pop(each.key, None)
            is_plain = value is None or each.read is None
            given[each.name] = value if is_plain else each.read(value, each.key)  # type: ignore[misc]
        found = cls(**given)
        vars(found).update(_about=rest, _given=frozenset(values))
        return found

    figure: ClassVar[Callable[..., Any] | None] = None

    def plot(self, **options: Any) -> Figure:
        """Draw the figure of the result, with the options of the figure.

        Raises
        ------
        TypeError
            The result has no figure.
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        if self.figure is None:
            raise TypeError(f"{type(self).__name__} has no figure")
        figure: Figure = self.figure(self.to_dict(), **options)
        return figure

    def with_values(self, **values: Any) -> Self:
        """Return the result with further values."""
        return type(self).from_dict(self.to_dict() | values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.about:
            known = ", ".join(dir(self))
            raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {known}")
        return self.about[name]

    def __dir__(self) -> list[str]:
        public = (name for name in super().__dir__() if not name.startswith("_"))
        return sorted({*public, *self.about})

    @classmethod
    def _fields(cls) -> tuple[_Place, ...]:
        own: Any = cls
        return _places(own)

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the result in a JSON text."""
        return cls.from_dict(json.loads(text))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ((each.name, getattr(self, each.name)) for each in fields(self))
        parts = [f"{name}={_short(value)}" for name, value in shown if value is not None]
        return f"{type(self).__name__}({', '.join(parts)})"


def plain(value: Any) -> Any:
    """Return a value that contains results as plain values."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def key_of(name: str) -> str:
    """Return the name of a field in JSON: an underscore at its end avoids a word of Python."""
    return name.rstrip("_")


class _Place(NamedTuple):
    name: str
    key: str
    is_omitted: bool
    read: Reader | None


@cache
def _places(cls: Any) -> tuple[_Place, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Place(each.name, key_of(each.name), OMITTED in each.metadata, _reader(hints[each.name]))
        for each in fields(cls)
    )


def _reader(kind: Any) -> Reader | None:
    """Return the function that reads a plain value of this type; None if the plain value is the value."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _optional([_reader(each) for each in inner if each is not NoneType])
    if origin in (list, dict):
        read = _reader(inner[-1])
        return None if read is None else (_listed(read) if origin is list else _named(read))
    if not hasattr(kind, "from_dict"):
        return None
    return (
        _named_estimate if kind.__name__ == "Estimate" else lambda value, _: kind.from_dict(value)
    )


def _named_estimate(value: Any, name: str) -> Any:
    from calibrant.metrics.estimate import Estimate

    return Estimate.from_dict(value, name)


def _optional(readers: list[Reader | None]) -> Reader | None:
    read = next((each for each in readers if each is not None), None)
    return (
        None if read is None else lambda value, name: None if value is None else read(value, name)
    )


def _listed(read: Reader) -> Reader:
    return lambda values, name: [read(each, name) for each in values]


def _named(read: Reader) -> Reader:
    return lambda values, _: {name: read(each, name) for name, each in values.items()}


def _short(value: Any) -> str:
    """Return a value of a printed result; of lists and tables their size.

    >>> _short([1, 2]), _short(0.123456), _short("pooled")
    ('<2 values>', '0.1235', "'pooled'")
    """
    if isinstance(value, list | dict):
        return f"<{len(value)} value{'s' * (len(value) != 1)}>"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def short_estimate(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an estimate without details: what a decision needs, without `include=details`."""
    return None if found is None else dict.fromkeys(ALWAYS) | only(ESTIMATE, found)


def only(names: frozenset[str], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named fields."""
    return {key: value for key, value in found.items() if key in names}
