"""What runs: the versions of the package, of its code and of the API."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from calibrant_server.workers.queries import code_version

API_VERSION = "1"

try:
    VERSION = version("calibrant")
except PackageNotFoundError:
    VERSION = "0+unpackaged"

# Of everything that an answer or a picture of it is made by; ETags name it.
CODE_VERSION = f"{code_version.CODE_VERSION}.{code_version.digest_of_code([Path(__file__).parent])}"
