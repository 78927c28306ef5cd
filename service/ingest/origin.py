"""What a batch holds, so that nothing counts twice: messages of a source, such as a partition of Kafka, or the task of a job."""

from collections.abc import Mapping
from typing import Any

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.names import IDENTIFIER, IDENTIFIER_RULE
from calibrant_server.service.ingest.schemas import SourceQuery
from calibrant_server.workers.ingest.entries import JobTask, Origin, SourceOffsets

ORIGIN_FIELDS = ("source", "offsets", "job", "task")
MAX_OFFSET = 2**53 - 1  # the largest integer that JSON and Lua have exactly


def origin_of(document: Mapping[str, Any]) -> Origin | None:
    """Return the source and offsets, or the job and task, that a document states; None if neither.

    Raises
    ------
    CalibrationInputError
        Both, one field without the other, a name that is no id, offsets that are not `[from, to)`, or a task that is no number.
    """
    source, offsets, job, task = (document.get(name) for name in ORIGIN_FIELDS)
    if job is None and task is None:
        return None if source is None and offsets is None else _messages_of(source, offsets)
    if source is not None or offsets is not None:
        detail = "Received a task of a job and messages of a source; expected one of them."
        raise _error("job", "exclusive", detail)
    return _task_of(job, task)


def _messages_of(source: Any, offsets: Any) -> SourceOffsets:
    if source is None or offsets is None:
        missing = ORIGIN_FIELDS[0] if source is None else ORIGIN_FIELDS[1]
        raise _error(missing, "required", "Received one of source and offsets; expected both.")
    if not isinstance(source, str) or not IDENTIFIER.fullmatch(source):
        detail = f"Received a source that is no id; expected {IDENTIFIER_RULE}"
        raise _error("source", "id", detail)
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(type(each) is int for each in offsets)
        and 0 <= offsets[0] < offsets[1] <= MAX_OFFSET
    ):
        detail = (
            f"Received other offsets; expected two integers [from, to) with 0 <= from < to <= {MAX_OFFSET}: "
            "the first message of the batch and the one behind its last."
        )
        raise _error("offsets", "range", detail)
    return SourceOffsets(source, *offsets)


def _task_of(job: Any, task: Any) -> JobTask:
    if job is None or task is None:
        missing = "job" if job is None else "task"
        raise _error(missing, "required", "Received one of job and task; expected both.")
    if not isinstance(job, str) or not IDENTIFIER.fullmatch(job):
        raise _error("job", "id", f"Received a job that is no id; expected {IDENTIFIER_RULE}")
    if type(task) is not int or not 0 <= task <= MAX_OFFSET:
        detail = (
            "Received another task; expected an integer from 0: the number of the task in its job."
        )
        raise _error("task", "range", detail)
    return JobTask(job, task)


def origin_of_query(query: SourceQuery) -> Origin | None:
    """Return what query parameters state, such as `source=orders-3&offsets=100,250` or `job=log&task=7`."""
    offsets = query.offsets
    numbers: Any = offsets
    if offsets is not None:
        parts = offsets.split(",")
        if all(part.isascii() and part.isdigit() and len(part) <= 16 for part in parts):
            numbers = [int(part) for part in parts]
    given = {"source": query.source, "offsets": numbers, "job": query.job, "task": query.task}
    return origin_of(given)


def agreed_origin(in_body: Origin | None, in_query: Origin | None) -> Origin | None:
    """Return what body or query state; both may, if they are equal."""
    if in_body is not None and in_query is not None and in_body != in_query:
        names = "source and offsets" if isinstance(in_query, SourceOffsets) else "job and task"
        detail = f"Received other {names} in the query than in the body; expected the same, or one of them."
        field = "offsets" if isinstance(in_query, SourceOffsets) else "task"
        raise _error(field, "agreement", detail)
    return in_body or in_query


def _error(field: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError([Violation(f"/{field}", rule, detail)])
