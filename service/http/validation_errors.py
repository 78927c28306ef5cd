"""Sentences for values that a query, a path, a header or a small body cannot have: what came, and what is expected."""

from __future__ import annotations

from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.problem import escaped

Model = TypeVar("Model", bound=BaseModel)
KEY_ITSELF = "[key]"  # pydantic's marker for an invalid name, as opposed to an invalid value
QUOTED = 60  # characters of a text that an error repeats

# Rules whose names here differ from pydantic's.
RULES = {
    "extra_forbidden": "unknown_field",
    "literal_error": "unknown_value",
    "string_pattern_mismatch": "pattern",
    "string_type": "string",
    "string_folder": "id",
    "int_type": "integer",
    "int_parsing": "integer",
    "float_type": "number",
    "float_parsing": "number",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "list_type": "list",
    "bool_type": "boolean",
    "bool_parsing": "boolean",
}
# What is expected, by pydantic's own name of the rule; the names in braces are pydantic's.
EXPECTED = {
    "literal_error": "{expected}",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_type": "a text",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "list_type": "a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "an object"),
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}


def validated(model: type[Model], document: Any, at: tuple[str, ...] = ()) -> Model:
    """Return the model of a document.

    Parameters
    ----------
    at : where the document is in the body

    Raises
    ------
    CalibrationInputError
        Every rule that the document breaks.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        found = [
            violation_of(
                {**each, "loc": ("body", *at, *each["loc"])}, fields_at(model, each["loc"])
            )
            for each in error.errors()
        ]
        raise CalibrationInputError(found) from error


def violation_of(error: dict[str, Any], known: list[str] | None = None) -> Violation:
    """Return one validation error of pydantic as pointer, rule and detail.

    Parameters
    ----------
    known : names of the fields where the error is, if there are some
    """
    parts = [part for part in error["loc"][1:] if part != KEY_ITSELF]
    place = "".join(f"/{escaped(part)}" for part in parts)
    rule = RULES.get(error["type"], error["type"])
    name = next((each[:QUOTED] for each in reversed(parts) if isinstance(each, str)), "body")
    if rule == "unknown_field":
        instead = f"expected one of {', '.join(known)}" if known else "remove it"
        return Violation(place, rule, f"Received unknown field {name!r}; {instead}.")
    if rule == "missing" and parts:
        return Violation(place, rule, f"Received no {name}; it is required.")
    return Violation(place, rule, _sentence(error, name, known))


def fields_at(model: type[BaseModel], parts: tuple[Any, ...]) -> list[str]:
    """Return the names of the fields next to an unknown one, or inside of the place of an error; none if names are free there."""
    found: Any = model
    for part in parts:
        inner = _inner(found, part)
        if inner is None:
            return [] if part in found.model_fields else _names_of(found)
        found = inner
    return _names_of(found)


def _names_of(model: type[BaseModel]) -> list[str]:
    """Return the names of the fields as clients send them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _inner(model: type[BaseModel], part: Any) -> type[BaseModel] | None:
    """Return the model of a field, of its items or alternatives; the model itself for the index of an item."""
    if not isinstance(part, str):
        return model
    field = model.model_fields.get(part)
    return None if field is None else _model_in(field.annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each))), None)


def _sentence(error: dict[str, Any], name: str, known: list[str] | None) -> str:
    text = EXPECTED.get(_kind(error))
    if text is None:
        return _given(error, name)
    expected = text.format_map(error.get("ctx", {}))
    if "secret" in name:
        return f"Received another {name}; expected {expected}."
    if expected == "an object" and known:
        expected = f"an object with {', '.join(known)}"
    return f"Received {shown(error.get('input'))} for {name}; expected {expected}."


def _kind(error: dict[str, Any]) -> str:
    """Return pydantic's name of the rule; a text whose length is checked after it was read has characters, not entries."""
    kind = str(error["type"])
    is_text = kind in ("too_short", "too_long") and isinstance(error.get("input"), str)
    return f"string_{kind}" if is_text else kind


def _given(error: dict[str, Any], name: str) -> str:
    """Return a sentence around the text of a check of ours, or of a rule without a text here."""
    text = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    if text.lower().startswith("received"):
        return f"{text[:1].upper()}{text[1:]}."
    return f"Received {shown(error.get('input'))} for {name}; {text[:1].lower()}{text[1:]}."


def shown(value: Any) -> str:
    """Return how an error repeats a value: texts and numbers as sent, and the kind of everything else."""
    if isinstance(value, str):
        return repr(value if len(value) <= QUOTED else f"{value[:QUOTED]}…")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return f"{value!r}"[:QUOTED]
    return "a list" if isinstance(value, list | tuple) else "an object"
