"""Bulk jobs: numbered tasks in any order, each counted once, also if it is repeated after its batch id is forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import Violation
from calibrant_server.service.engine import Connection, engine_errors, model_of
from calibrant_server.service.http.dependencies import TheConnection, TheIngestService
from calibrant_server.service.http.errors import JobConflict, JobUnknown, ModelUnknown, QuotaFull
from calibrant_server.service.http.json_bodies import json_response
from calibrant_server.service.http.lists import (
    NOT_MODIFIED,
    PAGE_HEADERS,
    ListPage,
    PageQuery,
    list_response,
    page_of,
)
from calibrant_server.service.http.parameters import IfNoneMatch, JobName, ModelId, Name
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.reads.frozen_maps import document, valid
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.workers.store.frozen_maps import NoSuchModel
from calibrant_server.workers.store.jobs import (
    MAX_JOBS,
    MAX_OPEN,
    MAX_TASKS,
    MAX_TASKS_OF_MODEL,
    Job,
    JobsFull,
    NoSuchJob,
    OtherJob,
    missing_ranges,
)
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import rfc3339

router = APIRouter(tags=["jobs"], default_response_class=Response)
Sender = Annotated[Caller, Depends(needs("ingest"))]
Follower = Annotated[Caller, Depends(needs("ingest", "read"))]

MAX_RANGES = 1000
FULL_RETRY_S = 60


class NewJob(BaseModel):
    """The job to make."""

    model_config = ConfigDict(extra="forbid", strict=True)

    job: Name | None = Field(None, description="Default: a new name.")
    tasks: int = Field(ge=1, le=MAX_TASKS, description="Number of tasks: 0 to `tasks` - 1.")


class JobChange(BaseModel):
    """The change of a job."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["closed"]


class MissingQuery(BaseModel):
    """Where the missing tasks begin."""

    model_config = ConfigDict(extra="forbid")

    from_: int = Field(0, alias="from", ge=0, description="First task that `missing` may have.")


class JobSummary(BaseModel):
    """A bulk job."""

    job: str
    status: Literal["open", "closed"] = Field(
        description="A job closes when its last task is accepted, or by request."
    )
    tasks: int
    accepted: int = Field(description="Number of tasks whose batch was accepted.")
    in_queue: bool = Field(
        description="Whether accepted batches wait in the queue. False: each is merged, parked, rejected or dead-lettered."
    )
    created_at: str
    closed_at: str | None
    expires_at: str | None = Field(description="The job is dropped 30 days after it closes.")


class JobResponse(JobSummary):
    """A bulk job, with the tasks that are missing."""

    # Lists rather than tuples: linters and generators of clients do not read `prefixItems`.
    missing: list[Annotated[list[int], Field(min_length=2, max_length=2)]] = Field(
        description=f"Ranges `[from, to)` of tasks that are not accepted; at most {MAX_RANGES}."
    )
    missing_next: int | None = Field(
        description="`from` of a request for further ranges; null if `missing` is complete."
    )


class JobsResponse(ListPage):
    """Bulk jobs of a model, sorted by name."""

    jobs: list[JobSummary]


@router.post(
    "/v1/models/{model}/jobs",
    operation_id="createJob",
    status_code=201,
    responses={
        200: success(JobResponse, "There is a job of this name with as many tasks", Location="The job."),
        201: success(JobResponse, "The job, made", Location="The job."),
        **problems(408, 409, 413, 415, 422, 429),
    },
    openapi_extra=takes("The job", json=NewJob),
)  # fmt: skip
async def create_job(
    model: ModelId,
    request: Request,
    caller: Sender,
    ingest: TheIngestService,
    connection: TheConnection,
) -> Response:
    """Make a bulk job, or continue the one of this name.

    Send each task as one batch with `job` and `task`. The tasks may finish in any order. Each counts once, whatever its batch
    id, until the job is dropped.
    """
    wanted: NewJob = valid(NewJob, await document(request, ingest))
    config = await model_of(connection, caller, model)
    name = wanted.job or f"job-{uuid4().hex}"
    with engine_errors(), _job_errors(model):
        is_new = await connection.inbox.jobs.put(config, name, wanted.tasks)
    found = await _shown(connection, config, name)
    location = f"/v1/models/{model}/jobs/{name}"
    return json_response(found, 201 if is_new else 200, Location=location)


@router.get(
    "/v1/models/{model}/jobs",
    operation_id="listJobs",
    responses={
        200: success(JobsResponse, "A page of jobs", **PAGE_HEADERS),
        304: NOT_MODIFIED,
        **problems(422),
    },
)
async def list_jobs(
    model: ModelId,
    request: Request,
    caller: Follower,
    query: Annotated[PageQuery, Query()],
    connection: TheConnection,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the bulk jobs of a model, sorted by name."""
    config = await model_of(connection, caller, model)
    with engine_errors():
        found = await connection.inbox.jobs.listed(config)
    page, following = page_of(found, lambda job: [job.name], query)
    return list_response(request, {"jobs": [_summary(job) for job in page]}, following)


@router.get(
    "/v1/models/{model}/jobs/{job}",
    operation_id="getJob",
    responses={200: success(JobResponse, "The job"), **problems(422)},
)
async def get_job(
    model: ModelId,
    job: JobName,
    caller: Follower,
    query: Annotated[MissingQuery, Query()],
    connection: TheConnection,
) -> Response:
    """Return a bulk job: how many tasks are accepted, and which are missing."""
    config = await model_of(connection, caller, model)
    return json_response(await _shown(connection, config, job, query.from_))


@router.patch(
    "/v1/models/{model}/jobs/{job}",
    operation_id="closeJob",
    responses={200: success(JobResponse, "The job, closed"), **problems(408, 413, 415, 422)},
    openapi_extra=takes("The change", json=JobChange),
)
async def close_job(
    model: ModelId,
    job: JobName,
    request: Request,
    caller: Sender,
    ingest: TheIngestService,
    connection: TheConnection,
) -> Response:
    """Close a bulk job before all of its tasks are accepted. A closed job takes no further task."""
    valid(JobChange, await document(request, ingest))
    config = await model_of(connection, caller, model)
    with engine_errors(), _job_errors(model):
        await connection.inbox.jobs.close(config, job)
    return json_response(await _shown(connection, config, job))


async def _shown(
    connection: Connection, config: ModelConfig, name: str, first: int = 0
) -> dict[str, Any]:
    with engine_errors(), _job_errors(config.model):
        job, bits = await connection.inbox.jobs.get(config, name)
    missing, following = missing_ranges(bits, job.tasks, first, MAX_RANGES)
    return {**_summary(job), "missing": missing, "missing_next": following}


def _summary(job: Job) -> dict[str, Any]:
    return {
        "job": job.name,
        "status": "open" if job.closed_ms is None else "closed",
        "tasks": job.tasks,
        "accepted": job.accepted,
        "in_queue": job.in_queue,
        "created_at": _time(job.created_ms),
        "closed_at": _time(job.closed_ms),
        "expires_at": _time(job.expires_ms),
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(datetime.fromtimestamp(ms / 1000, UTC))


@contextmanager
def _job_errors(model: str) -> Iterator[None]:
    """Translate the errors of the store of jobs."""
    try:
        yield
    except NoSuchModel as error:
        raise ModelUnknown() from error
    except NoSuchJob as error:
        raise JobUnknown(f"The model {model!r} has no job {error.args[0]!r}.") from error
    except OtherJob as error:
        detail = (
            f"Received another number of tasks than the {error.tasks} of the job of this name. "
            "Use the same number, or another name."
        )
        raise JobConflict(detail, errors=[Violation("/tasks", "same_tasks", detail)]) from error
    except JobsFull as error:
        if error.is_open:
            detail = f"The model has {MAX_OPEN} open jobs, the maximum. Close one."
        else:
            detail = (
                f"The jobs of the model would exceed {MAX_JOBS}, or {MAX_TASKS_OF_MODEL} tasks in all. "
                "Closed jobs count until they are dropped."
            )
        raise QuotaFull(detail, retry_after_s=FULL_RETRY_S) from error
