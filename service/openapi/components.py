"""What FastAPI leaves to us in the API document: shared error responses, which it repeats in every operation, and common descriptions."""

import re
from typing import Any

RESPONSES = "#/components/responses/"
# Names begin with a letter: a client generator may make identifiers of them.
RESPONSE_NAME = "E{status}"
SHARED_STATUS = re.compile(r"304|[45]\d\d")

# Descriptions of parameters that several operations share; an operation's own description takes precedence.
DESCRIPTIONS = {
    "raters": "Label policy: how several ratings of one prediction count.",
    "binning": "Binning method.",
    "bins": "Number of bins.",
    "edges": "`right`: bins are (a, b], and 0 is in the first; `left`: bins are [a, b).",
    "min_count": "Bins with less weight are left out.",
    "scope": "The probability to bin: top_label, positive, class:NAME or all. "
    "Default: positive for binary models, else top_label.",
    "objective": "The loss that the temperature minimises.",
    "ci": "Level of the intervals.",
}


def describe_parameters(operations: list[dict[str, Any]]) -> None:
    """Describe common parameters that have no description of their own."""
    for operation in operations:
        for parameter in operation.get("parameters", ()):
            if parameter["name"] in DESCRIPTIONS:
                parameter.setdefault("description", DESCRIPTIONS[parameter["name"]])


def shared_responses(operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one response per status of an error, and 304; operations refer to it."""
    shared: dict[str, Any] = {}
    for operation in operations:
        for status, response in operation["responses"].items():
            if SHARED_STATUS.fullmatch(str(status)):
                name = RESPONSE_NAME.format(status=status)
                shared.setdefault(name, response)
                operation["responses"][status] = {"$ref": RESPONSES + name}
    return shared


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the target of a reference into the document; any other node unchanged."""
    while (reference := node.get("$ref", "")).startswith("#/"):
        found: Any = document
        for part in reference[2:].split("/"):
            found = found[part]
        node = found
    return node
