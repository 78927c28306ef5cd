"""Bases of problems: the members of a problem document, slug and title from the class name, and headers of a family."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from calibrant.core.errors import Violation

# The same request, sent again, may succeed without a change by the client.
RETRYABLE = frozenset({408, 429, 503})
PROBLEMS: dict[str, type[Problem]] = {}


def escaped(part: object) -> str:
    """Return a part of a JSON Pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")


def _words(name: str) -> list[str]:
    return re.findall(r"[A-Z][a-z]*", name)


class Problem(Exception):
    """Base of all problems."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "problem"
    title: ClassVar[str] = "Problem"

    def __init_subclass__(cls, *, family: bool = False) -> None:
        if family:
            return
        words = _words(cls.__name__)
        cls.slug = "-".join(words).lower()
        cls.title = " ".join(words).capitalize()
        PROBLEMS[cls.slug] = cls

    def __init__(
        self,
        detail: str | None = None,
        *,
        errors: Iterable[Violation] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.detail = detail or self.message()
        self.errors = list(errors)
        self.headers = dict(headers or {})
        super().__init__(self.detail)

    @classmethod
    def message(cls) -> str:
        """Return the docstring on one line: what the problem means and what to do."""
        return " ".join((cls.__doc__ or "").split())

    def body(self, instance: str, request_id: str | None = None) -> dict[str, Any]:
        """Return the members of the problem document for the request at `instance`."""
        return {
            "type": f"/v1/problems/{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "request_id": request_id,
            "retryable": self.status in RETRYABLE,
            "errors": [
                {"pointer": e.pointer, "rule": e.rule, "detail": e.detail} for e in self.errors
            ],
        }


class KeyProblem(Problem, family=True):
    """The request has no valid key; the header WWW-Authenticate asks for one."""

    status = 401
    challenge: ClassVar[str] = 'Bearer realm="calibrant"'

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": self.challenge})


class RetryLater(Problem, family=True):
    """The request was not handled; the header Retry-After gives the time to wait before sending it again."""

    status = 503

    def __init__(self, detail: str | None = None, *, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = max(1, int(-(-retry_after_s // 1)))
        super().__init__(detail, headers={"Retry-After": str(self.retry_after_s)})
