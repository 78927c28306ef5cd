"""The pages of problems: what `type` in an error leads to."""

from collections.abc import Iterable

from fastapi import Response

from calibrant_server.service.http.problem import Problem
from calibrant_server.service.pages.rendering import page


def problem_page(kind: type[Problem]) -> Response:
    """Return the page of one problem."""
    return page("problems.html", None, {"kinds": [kind], "is_list": False})


def problems_page(kinds: Iterable[type[Problem]]) -> Response:
    """Return the list of problems."""
    return page("problems.html", None, {"kinds": list(kinds), "is_list": True})
