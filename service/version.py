"""What runs: the version of this code and of the API."""

from importlib.metadata import PackageNotFoundError, version

API_VERSION = "1"

try:
    VERSION = version("calibrant")
except PackageNotFoundError:
    VERSION = "0+unpackaged"
