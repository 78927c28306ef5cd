"""Options of calibration errors of cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import Option
from calibrant.segmentation.case_bins import MEMBERSHIPS
from calibrant.segmentation.case_kernels import KERNELS

AVERAGES = ("macro", "micro", "micro_pooled")
MISSING = ("include", "skip_class", "skip_case")
BACKGROUNDS = ("out", "in")
AVERAGE = Option(
    "average",
    "macro",
    "Over cases (macro), over all as the papers' code does (micro), or all pooled.",
    AVERAGES,
)
MEMBERSHIP = Option(
    "membership",
    "hard",
    "Bins with hard limits, triangular ones (soft), or with a cubic spline or Gaussian kernel (raw rows only).",
    (*MEMBERSHIPS, *KERNELS),
)
BACKGROUND = Option("background", "out", "Whether to include class 0.", BACKGROUNDS)
REGIONS = Option(
    "regions",
    "own",
    "The model's own classes, or the composites that it declares.",
    ("own", "composites"),
)
MISSING_CLASS = Option(
    "missing",
    "include",
    "Handling of a class without ratings in a case: included with frequency 0, class left out, or case left out.",
    MISSING,
)
CASE_OPTIONS = (AVERAGE, MEMBERSHIP, BACKGROUND, MISSING_CLASS, REGIONS)


@dataclass(frozen=True)
class CaseOptions:
    """Options of cases in addition to bins, edges and label policy.

    Attributes
    ----------
    average : "macro", "micro" or "micro_pooled"
    membership : "hard", "soft", or from raw rows "spline" or "gaussian"
    background : whether to include class 0: "in" or "out"
    missing : handling of a class without a rating in a case: "include" keeps it with o = 0, "skip_class" leaves
        out that class of that case, "skip_case" the whole case
    regions : "own", or "composites" for those that the model declares
    composites : name to classes, instead of the model's own classes; from raw rows only
    """

    average: str = "macro"
    membership: str = "hard"
    background: str = "out"
    missing: str = "include"
    regions: str = "own"
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def read(cls, options: Mapping[str, Any], n_classes: int) -> CaseOptions:
        """Read the options of a query.

        Raises
        ------
        CalibrationInputError
            An unknown value.
        """
        given = {
            each.name: each.read(options[each.name])
            for each in CASE_OPTIONS
            if each.name in options
        }
        composites = _composites(options.get("composites", {}), n_classes)
        return cls(**given, composites=composites)  # type: ignore[arg-type]

    def counted(self, n_classes: int) -> list[int]:
        """Return the classes that count; of a single class, that one."""
        first = 0 if self.background == "in" or self.composites or n_classes == 1 else 1
        return list(range(first, n_classes))


def _composites(given: Any, n_classes: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise CalibrationInputError.at(
            "/composites",
            "object",
            "Received composites of another type; expected an object from names to lists of classes.",
        )
    result = []
    for name, members in given.items():
        found = list(members) if isinstance(members, list | tuple) else []
        if not found or any(type(k) is not int or not 0 <= k < n_classes for k in found):
            detail = f"Received another composite; expected a list of classes, each from 0 to {n_classes - 1}."
            raise CalibrationInputError.at(f"/composites/{name}", "class_range", detail)
        result.append((str(name), tuple(dict.fromkeys(found))))
    return tuple(result)
