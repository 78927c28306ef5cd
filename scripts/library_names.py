"""Write what follows from declarations.

From `METRICS` the package's type stub and the table of functions in `docs/library.md`, from the reads the table in `docs/client.md`,
from the settings the table in `docs/operations.md`, from the asynchronous client the synchronous one.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import calibrant
from calibrant.core.query import Bins
from calibrant.library_arguments import DATA
from calibrant.metric_functions import FUNCTIONS
from calibrant.metrics import METRICS
from calibrant.results.reads import find_reads
from scripts import settings_table, synchronous_client

ROOT = Path(__file__).parents[1]
STUB = ROOT / "calibrant" / "__init__.pyi"
PAGE = ROOT / "docs" / "library.md"
CLIENT = ROOT / "docs" / "client.md"
RESULTS = "| Method | Path below the model | Result |\n|---|---|---|\n"
TABLE = "| Function | Metric | Source |\n|---|---|---|\n"
HEAD = """# Written by `make names`; do not edit.
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

"""
# A function checks at run time which options its metric takes; its own signature lists these.
FUNCTION = """
class MetricFunction(Protocol):
    def __call__(
        self, probabilities: Any = None, labels: Any = None, **options: Unpack[Options]
    ) -> Estimate: ...

"""


def stub() -> str:
    """Return the text of the stub: where each name is, the options of all metrics, and the functions that take them."""
    places = vars(calibrant)["_PLACES"]
    by_place = sorted((place, name) for name, place in places.items())
    imports = [f"from calibrant.{place} import {name} as {name}\n" for place, name in by_place]
    head = [HEAD, *imports, "\n__version__: str\n\nclass Options(TypedDict, total=False):\n"]
    options = [f"    {name}: {kind}\n" for name, kind in _options().items()]
    return "".join(
        [*head, *options, FUNCTION, *(f"{name}: MetricFunction\n" for name in FUNCTIONS)]
    )


def _options() -> dict[str, str]:
    """Return the types of everything that functions of metrics take by name."""
    signatures = [inspect.signature(function) for function in FUNCTIONS.values()]
    taken = [each for signature in signatures for each in signature.parameters.values()]
    named = [each for each in taken if each.kind is each.KEYWORD_ONLY]
    found = {each.name: "Any" if each.name in DATA else _named(each.annotation) for each in named}
    return found | {"bins": _named(Bins)}


def _named(kind: Any) -> str:
    names = {dict: "Mapping[str, Sequence[int]]", type(None): "None"}
    each = kind.__args__ if isinstance(kind, UnionType) else (kind,)
    return " | ".join(names.get(one) or _plain(one) for one in each)


def _plain(kind: Any) -> str:
    inner = ", ".join(_named(each) for each in get_args(kind))
    return f"{kind.__name__}[{inner}]" if inner else kind.__name__


def page() -> str:
    """Return the text of the page, with the table of the metrics at its end."""
    rows = [f"| `cal.{slug}` | {each.title} | {each.source} |\n" for slug, each in METRICS.items()]
    return PAGE.read_text().partition(TABLE)[0] + TABLE + "".join(rows)


def client_page() -> str:
    """Return the text of the page of the client, with the table of the declared results."""
    rows = [
        f"| `{name}` | `/{each.path}` | {each.summary.partition(chr(10))[0]} |\n"
        for name, each in find_reads().items()
    ]
    before, _, after = CLIENT.read_text().partition(RESULTS)
    return before + RESULTS + "".join(rows) + "\n" + after[after.index("## ") :]


if __name__ == "__main__":
    STUB.write_text(stub())
    PAGE.write_text(page())
    CLIENT.write_text(client_page())
    settings_table.PAGE.write_text(settings_table.page())
    synchronous_client.write()
