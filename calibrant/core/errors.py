"""What the ground floor says when a value cannot be used: which field, which row, which rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One broken rule: a JSON Pointer to the place, the rule's name, a sentence for a person."""

    pointer: str
    rule: str
    detail: str


class CalibrationInputError(ValueError):
    """The input breaks a rule; `violations` names each place and rule."""

    def __init__(self, violations: list[Violation]) -> None:
        self.violations = violations
        super().__init__("; ".join(f"{o.pointer or '/'}: {o.detail}" for o in violations[:3]))

    @classmethod
    def at(cls, pointer: str, rule: str, detail: str) -> CalibrationInputError:
        """The error of a single violation."""
        return cls([Violation(pointer, rule, detail)])
