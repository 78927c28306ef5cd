"""The audit of a request: whether an entry is due, and what it says besides key, operation and subject."""

from dataclasses import dataclass, field
from typing import Any

from fastapi import Request


@dataclass
class Audit:
    """What the log will say about one request."""

    is_due: bool = False
    details: dict[str, Any] = field(default_factory=dict)


def audit_of(request: Request) -> Audit:
    """Return the audit of a request."""
    found: Audit = request.scope.setdefault("audit", Audit())
    return found
