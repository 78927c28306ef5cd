"""What the ground floor says when a value cannot be used: which field, which row, which rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Offence:
    """One broken rule: a JSON Pointer to the place, the rule's name, a sentence for a person."""

    pointer: str
    rule: str
    detail: str


class CalibrationInputError(ValueError):
    """The input breaks a rule; `offences` names each place and rule."""

    def __init__(self, offences: list[Offence]) -> None:
        self.offences = offences
        super().__init__("; ".join(f"{o.pointer or '/'}: {o.detail}" for o in offences[:3]))

    @classmethod
    def at(cls, pointer: str, rule: str, detail: str) -> CalibrationInputError:
        """The error of a single offence."""
        return cls([Offence(pointer, rule, detail)])
