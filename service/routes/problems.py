"""A page for each problem: what `type` in an error leads to."""

from typing import Annotated, Any

import orjson
from fastapi import Depends, Path, Response
from pydantic import BaseModel

from calibrant_server.service.http.parameters import negotiated
from calibrant_server.service.http.problems import PROBLEMS, PathUnknown, Problem
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.pages.rendering import page
from calibrant_server.service.reads.operations import Access, Operations, only_known_parameters

router = Operations("problems", dependencies=[Depends(only_known_parameters)])
SLUG = ("slug", Annotated[str, Path(description="Last part of `type`.")])
JSON, HTML = "application/json", "text/html"


class ProblemType(BaseModel):
    """A kind of problem."""

    type: str
    title: str
    status: int
    description: str


class ProblemTypes(BaseModel):
    """Every kind of problem."""

    problems: list[ProblemType]


def or_page(described: dict[str, Any]) -> dict[str, Any]:
    """Describe a response that is also available as a page."""
    return {**described, "content": described["content"] | {HTML: {"schema": {"type": "string"}}}}


@router.operation("GET /v1/problems", None, or_page(success(ProblemTypes, "The problems")), 406)
async def list_problems(access: Access) -> Response:
    """List every problem that the service returns."""
    kinds = sorted(PROBLEMS.values(), key=lambda kind: (kind.status, kind.slug))
    if negotiated(access.request, [JSON, HTML]) == HTML:
        return _page(kinds)
    return _json({"problems": [described(kind) for kind in kinds]})


@router.operation(
    "GET /v1/problems/{slug}", None, or_page(success(ProblemType, "The problem")), 406, id=SLUG
)
async def get_problem(access: Access) -> Response:
    """Describe one problem."""
    slug = access.id
    if slug not in PROBLEMS:
        raise PathUnknown(f"There is no problem {slug[:60]!r}; /v1/problems lists them.")
    if negotiated(access.request, [JSON, HTML]) == HTML:
        return _page([PROBLEMS[slug]], is_list=False)
    return _json(described(PROBLEMS[slug]))


def described(kind: type[Problem]) -> dict[str, Any]:
    """Return the members that describe a kind of problem."""
    return {
        "type": f"/v1/problems/{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "description": kind.message(),
    }


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type=JSON)


def _page(kinds: list[type[Problem]], is_list: bool = True) -> Response:
    return page("problems.html", None, {"kinds": kinds, "is_list": is_list})
