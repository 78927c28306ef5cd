"""Dependencies of routes run on the event loop: FastAPI calls anything but a coroutine in another thread."""

from collections.abc import Iterator
from inspect import iscoroutinefunction

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute


def dependencies_of(dependant: Dependant) -> Iterator[Dependant]:
    for each in dependant.dependencies:
        yield each
        yield from dependencies_of(each)


def test_every_dependency_of_every_route_is_a_coroutine(app) -> None:
    routes = [each for each in app.state.routes if isinstance(each, APIRoute)]
    found = [
        (route.path, each.call) for route in routes for each in dependencies_of(route.dependant)
    ]
    assert len(found) > 80
    for path, call in found:
        is_coroutine = iscoroutinefunction(call) or iscoroutinefunction(type(call).__call__)
        assert is_coroutine, f"{path} depends on {call}"


def test_every_route_is_a_coroutine(app) -> None:
    for each in app.state.routes:
        if isinstance(each, APIRoute):
            call = type(each.endpoint).__call__
            assert iscoroutinefunction(each.endpoint) or iscoroutinefunction(call), each.path
