"""Outcomes of facts. Of several outcomes of one row, the first of this list is its outcome."""

from __future__ import annotations

GONE, CONFLICT, REVISED, FULL, NEW, STALE, DUPLICATE, EXPIRED = range(8)
NAMES = ("deleted", "conflict", "revised", "full", "new", "stale", "duplicate", "expired")
