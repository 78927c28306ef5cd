"""Write what follows from `METRICS`: the package's type stub, and the table of its functions in `docs/library.md`."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import Any

import calibrant
from calibrant.library_arguments import DATA
from calibrant.metric_functions import FUNCTIONS
from calibrant.metrics import METRICS

ROOT = Path(__file__).parents[1]
STUB = ROOT / "calibrant" / "__init__.pyi"
PAGE = ROOT / "docs" / "library.md"
TABLE = "| Function | Metric | Source |\n|---|---|---|\n"
HEAD = """# Written by `make names`; do not edit.
from collections.abc import Mapping, Sequence
from typing import Any

"""


def stub() -> str:
    """Return the text of the stub."""
    places = vars(calibrant)["_PLACES"]
    by_place = sorted((place, name) for name, place in places.items())
    imports = [f"from calibrant.{place} import {name} as {name}\n" for place, name in by_place]
    functions = [
        _function(name, inspect.signature(function)) for name, function in FUNCTIONS.items()
    ]
    return "".join([HEAD, *imports, "\n__version__: str\n\n", *functions])


def _function(name: str, signature: inspect.Signature) -> str:
    lines = [f"    {_parameter(each)},\n" for each in signature.parameters.values()]
    parameters = "".join([*lines[:2], "    *,\n", *lines[2:]])
    return f"def {name}(\n{parameters}) -> Estimate: ...\n"


def _parameter(parameter: inspect.Parameter) -> str:
    kind = "Any" if parameter.name in DATA else _named(parameter.annotation)
    default = (
        f'"{parameter.default}"' if isinstance(parameter.default, str) else repr(parameter.default)
    )
    return f"{parameter.name}: {kind} = {default}"


def _named(kind: Any) -> str:
    names = {dict: "Mapping[str, Sequence[int]]", type(None): "None"}
    each = kind.__args__ if isinstance(kind, UnionType) else (kind,)
    return " | ".join(names.get(one, one.__name__) for one in each)


def page() -> str:
    """Return the text of the page, with the table of the metrics at its end."""
    rows = [f"| `cal.{slug}` | {each.title} | {each.source} |\n" for slug, each in METRICS.items()]
    return PAGE.read_text().partition(TABLE)[0] + TABLE + "".join(rows)


if __name__ == "__main__":
    STUB.write_text(stub())
    PAGE.write_text(page())
