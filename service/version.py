"""Versions of the package, of its code and of the API."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from calibrant_server.workers.queries import query

API_VERSION = "1"

try:
    VERSION = version("calibrant")
except PackageNotFoundError:
    VERSION = "0+unpackaged"

# Digest of all code that makes a response or its figure; ETags contain it.
CODE_VERSION = f"{query.CODE_VERSION}.{query.digest_of_code([Path(__file__).parent])}"
