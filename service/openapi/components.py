"""Shared components of the API document: schemas, enums, parameters, headers and error responses.

FastAPI writes a parameter into every operation that takes it, and an error response into every
operation that can return it. Here each becomes one component with a name, to which operations
refer. A parameter cannot be null in a URL: the null of an optional one is removed.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from calibrant.calibrators import MAPS
from calibrant_server.service.http.parameters import NO_FOLDER, PATTERN

SCHEMAS = "#/components/schemas/"
PARAMETERS = "#/components/parameters/"
HEADERS = "#/components/headers/"
RESPONSES = "#/components/responses/"
NULL = {"type": "null"}
SUFFIXES = ("Response", "Body", "Query", "Record", "Update")

IDENTIFIER: dict[str, Any] = {"pattern": f"^{PATTERN}$", "type": "string", **NO_FOLDER}
IDENTIFIER_RULE = "1 to 128 of the characters A-Za-z0-9._:@-, and neither . nor .."

# Names of error responses begin with a letter: a client generator may make identifiers of them.
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

# Enums that several operations share, by their values; any other is named after its owner.
ENUM_NAMES: dict[tuple[Any, ...], str] = {
    ("pooled", "mean", "majority", "single"): "LabelPolicy",
    ("equal_width", "equal_mass"): "Binning",
    ("equal_width", "equal_mass", "hard", "soft", "spline", "gaussian"): "MetricBinning",
    ("hard", "soft", "spline", "gaussian"): "BinMembership",
    ("right", "left"): "Edges",
    ("event", "sealed"): "Clock",
    ("json", "svg", "png"): "FigureFormat",
    ("delta", "cumulative"): "UpdateMode",
    ("top_label", "class", "positive", "uncertainty"): "HistogramKind",
    ("positive", "top_label", "class", "full"): "MapScope",
    ("nll", "brier", "ece"): "TemperatureObjective",
    ("binary", "multiclass", "segmentation"): "Task",
    tuple(MAPS): "MapMethod",
    ("dirichlet", "ensemble", "dirichlet_ensemble"): "Belief",
    ("nested", "independent"): "Subsets",
    ("insufficient_data", "ok", "watch", "alarm"): "DriftStatus",
    ("open", "closed"): "AlarmState",
    ("waiting", "delivered", "given_up"): "DeliveryStatus",
    ("none", "temperature", "intercept", "slope_intercept", "flexible", "collect_more"): "Action",
}


def share_components(document: dict[str, Any]) -> None:
    """Replace what operations repeat by references to components, in place."""
    components = document["components"]
    schemas = components["schemas"]
    operations = [each for path in document["paths"].values() for each in path.values()]
    for operation in operations:
        for parameter in operation.get("parameters", ()):
            _without_null(parameter)
    enums = _EnumNames(schemas)
    for name, schema in list(schemas.items()):
        _shorten(schema)
        _name_enums(schema, enums, name)
    for operation in operations:
        owner = operation["operationId"][0].upper() + operation["operationId"][1:]
        for parameter in operation.get("parameters", ()):
            _shorten(parameter["schema"])
            parameter["schema"] = _named(parameter["schema"], enums, parameter["name"], owner)
    schemas.update(enums.found)
    schemas["Identifier"] = IDENTIFIER | {"description": IDENTIFIER_RULE}
    _share_properties(schemas)
    components["parameters"] = _shared_parameters(operations)
    components["headers"] = _shared_headers(operations)
    components["responses"] = _shared_responses(operations)


def _without_null(parameter: dict[str, Any]) -> None:
    """Remove the null and the repeated description of a parameter's schema; describe a shared parameter."""
    schema = parameter["schema"]
    schema.pop("description", None)
    if not parameter.get("required"):
        parameter.pop("required", None)
    if "description" not in parameter and parameter["name"] in DESCRIPTIONS:
        parameter["description"] = DESCRIPTIONS[parameter["name"]]
    options = schema.pop("anyOf", None)
    if options is not None:
        options = [each for each in options if each != NULL]
        schema.update(options[0] if len(options) == 1 else {"anyOf": options})
    if examples := schema.pop("examples", None):
        parameter["example"] = examples[0]


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Callable[..., None]]]:
    """Yield the schemas directly inside one: the name of each, the schema, and how to replace it."""
    for key in ("properties", "patternProperties", "$defs"):
        for name, each in schema.get(key, {}).items():
            yield name, each, _setter(schema[key], name)
    for key in ("items", "additionalProperties", "propertyNames", "not"):
        if isinstance(schema.get(key), dict):
            yield "", schema[key], _setter(schema, key)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, each in enumerate(schema.get(key, ())):
            yield "", each, _setter(schema[key], index)


def _setter(parent: Any, key: Any) -> Callable[..., None]:
    def put(value: Any) -> None:
        parent[key] = value

    return put


def _shorten(schema: dict[str, Any]) -> None:
    """Remove what a reader can do without, and write `T or null` of a plain type as a list of types.

    These are generated titles, and the default null of a field that may be left out.
    """
    schema.pop("title", None)
    if "default" in schema and schema["default"] is None:
        del schema["default"]
    options = schema.get("anyOf", [])
    if len(options) == 2 and options[1] == NULL and isinstance(options[0].get("type"), str):
        plain = options[0]
        if plain == IDENTIFIER:
            return
        if not plain.keys() & {"enum", "anyOf", "properties", "title"} and not (
            plain.keys() & schema.keys()
        ):
            del schema["anyOf"]
            schema.update({**plain, "type": [plain["type"], "null"]})
    for _, each, _ in subschemas(schema):
        _shorten(each)


class _EnumNames:
    """Names of enums, each found once."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self.taken = schemas
        self.found: dict[str, dict[str, Any]] = {}
        self._named: dict[tuple[Any, ...], str] = {}

    def of(self, schema: dict[str, Any], wanted: str, owner: str) -> str:
        """Return the name of the enum; `wanted` unless other values have that name."""
        values = tuple(schema["enum"])
        name = ENUM_NAMES.get(values) or self._named.get(values)
        if name is None:
            name = wanted
            if wanted in self.taken or wanted in self.found:
                name = owner + wanted
        self._named[values] = name
        kind: dict[str, Any] = {key: schema[key] for key in ("enum", "type") if key in schema}
        if self.found.setdefault(name, kind) != kind:
            raise ValueError(f"two enums are called {name}: {self.found[name]['enum']}, {values}")
        return name


def _named(schema: dict[str, Any], enums: _EnumNames, name: str, owner: str) -> dict[str, Any]:
    """Return the schema with every enum in it replaced by a reference."""
    if schema == IDENTIFIER:
        return {"$ref": SCHEMAS + "Identifier"}
    if len(schema.get("enum", ())) > 1 and schema["enum"] != [".", ".."]:
        wanted = _component_name(name)
        reference = {"$ref": SCHEMAS + enums.of(schema, wanted, owner)}
        rest = {key: each for key, each in schema.items() if key not in ("enum", "type")}
        return reference | rest
    _name_enums(schema, enums, owner, name)
    return schema


def _name_enums(schema: dict[str, Any], enums: _EnumNames, owner: str, name: str = "") -> None:
    for suffix in SUFFIXES:
        owner = owner.removesuffix(suffix) or owner
    for inner, each, put in list(subschemas(schema)):
        put(_named(each, enums, inner or name or "value", owner))


def _share_properties(schemas: dict[str, Any]) -> None:
    """Make a component of a property that several schemas repeat, if the references are shorter."""
    holders: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
    for schema in schemas.values():
        for name, each in schema.get("properties", {}).items():
            holders.setdefault((name, _key(each)), []).append(schema["properties"])
    for (name, form), places in sorted(holders.items()):
        component = _component_name(name)
        while component in schemas:
            component += "Field"
        reference = {"$ref": SCHEMAS + component}
        if (len(places) - 1) * len(form) > len(places) * len(_key(reference)) + len(component):
            schemas[component] = orjson.loads(form)
            for properties in places:
                properties[name] = dict(reference)


def _component_name(name: str) -> str:
    return "".join(part[0].upper() + part[1:] for part in name.replace("-", "_").split("_") if part)


def _shared_headers(operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the most frequent form of each response header, and refer to it."""
    responses = [each for operation in operations for each in operation["responses"].values()]
    counts: dict[str, Counter[bytes]] = {}
    for response in responses:
        for name, each in response.get("headers", {}).items():
            counts.setdefault(name, Counter())[_key(each)] += 1
    shared = {
        name: max(sorted(forms), key=forms.__getitem__)
        for name, forms in counts.items()
        if max(forms.values()) > 1
    }
    for response in responses:
        for name, each in response.get("headers", {}).items():
            if shared.get(name) == _key(each):
                response["headers"][name] = {"$ref": HEADERS + name}
    return {name: orjson.loads(form) for name, form in shared.items()}


def _key(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _shared_parameters(operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the most frequent form of each parameter that occurs twice, and refer to it."""
    counts: dict[str, Counter[bytes]] = {}
    for operation in operations:
        for each in operation.get("parameters", ()):
            counts.setdefault(each["name"], Counter())[_key(each)] += 1
    # Of equally frequent forms the one that sorts first: the document must not depend on chance.
    shared = {
        name: max(sorted(forms), key=forms.__getitem__)
        for name, forms in counts.items()
        if max(forms.values()) > 1
    }
    for operation in operations:
        operation["parameters"] = [
            {"$ref": PARAMETERS + each["name"]} if shared.get(each["name"]) == _key(each) else each
            for each in operation.get("parameters", ())
        ]
        if not operation["parameters"]:
            del operation["parameters"]
    return {name: orjson.loads(form) for name, form in shared.items()}


def _shared_responses(operations: list[dict[str, Any]]) -> dict[str, Any]:
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
