"""What a site must remember while it shares totals with a centre: its secret key, and the terms under which it has begun to share each model."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path


class FederationError(Exception):
    """Ledger, site, centre and contract do not fit together; the message says what to do."""


class Ledger:
    """A JSON file of one site, made if it does not exist. Which days were sent is known by the centre.

    Attributes
    ----------
    secret : key of the hashes that leave the site
    """

    def __init__(self, path: Path, site: str) -> None:
        self._path = path
        self._known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.secret = bytes.fromhex(self.agreed("secret", secrets.token_hex(32)))
        owner = self.agreed("site", site)
        if owner != site:
            raise FederationError(f"{path} is the ledger of site {owner!r}; expected {site!r}.")

    def agreed(self, name: str, value: str) -> str:
        """Return the value that was given first for a name."""
        if name not in self._known:
            self._known[name] = value
            self._write()
        return str(self._known[name])

    def _write(self) -> None:
        """Replace the file in one step; only its owner may read it."""
        draft = self._path.with_name(f"{self._path.name}.draft")
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            json.dump(self._known, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
