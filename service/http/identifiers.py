"""Ids: one rule for models, batches and predictions."""

import uuid
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from calibrant.core.errors import Violation
from calibrant.input.name_columns import NAME, NAME_RULE
from calibrant_server.service.http.errors import InvalidName

PATTERN = r"[A-Za-z0-9._:@-]{1,128}"
NO_FOLDER: Any = {"not": {"enum": [".", ".."]}}


def no_folder(text: str) -> str:
    """Return an id unchanged; reject it if a path cannot end in it."""
    if NAME.fullmatch(text):
        return text
    raise PydanticCustomError(
        "string_folder",
        "Received . or ..; expected another id: clients resolve them as path segments",
    )


def _in_path(what: str) -> Any:
    return Path(
        description=f"{what}: {NAME_RULE}", pattern=f"^{PATTERN}$", json_schema_extra=NO_FOLDER
    )


Name = Annotated[
    str, Field(pattern=f"^{PATTERN}$", json_schema_extra=NO_FOLDER), AfterValidator(no_folder)
]
ModelId = Annotated[str, _in_path("Model id"), AfterValidator(no_folder)]
BatchId = Annotated[str, _in_path("Batch id"), AfterValidator(no_folder)]
PredictionId = Annotated[str, _in_path("Prediction id"), AfterValidator(no_folder)]
BaselineName = Annotated[str, _in_path("Baseline"), AfterValidator(no_folder)]


def check_name(name: str, pointer: str) -> str:
    """Return `name` if it satisfies the rule for ids."""
    if NAME.fullmatch(name):
        return name
    shown = name if len(name) <= 40 else name[:40] + "…"
    detail = f"{shown!r} breaks the rule for ids: {NAME_RULE}"
    raise InvalidName(detail, errors=[Violation(pointer, "id", detail)])


def agreed_batch_id(in_body: str | None, in_header: str | None) -> str:
    """Return the id of a batch: from the body or Idempotency-Key, which must be equal, else a new one."""
    if in_header is not None:
        in_header = check_name(_unquoted(in_header), "/Idempotency-Key")
    if in_body is not None:
        check_name(in_body, "/batch_id")
    if in_body is not None and in_header is not None and in_body != in_header:
        detail = f"Received batch_id {in_body!r} and header Idempotency-Key {in_header!r}; expected equal values. Send one of them."
        raise InvalidName(detail, errors=[Violation("/batch_id", "same_id", detail)])
    return in_body or in_header or f"b.{uuid.uuid4().hex}"


def _unquoted(key: str) -> str:
    """Return a key without the quotes of structured headers."""
    return key[1:-1] if len(key) >= 2 and key[0] == key[-1] == '"' else key
