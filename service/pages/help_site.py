"""Files of the documentation site, which wheels contain and `make docs` builds in a clone."""

from functools import cache
from pathlib import Path

# In a clone, the package is reached through a link.
SERVICE = Path(__file__).resolve().parents[1]
# In a wheel, and in a clone.
PLACES = (SERVICE / "help", SERVICE.parent / "build" / "docs-site")
# The site's page for unknown addresses, which expects the site at the root. The service has one of its own.
UNUSED = "404.html"


@cache
def files() -> dict[str, Path]:
    """Return the files of the site by their paths in it; none if there is no site. Nothing else is ever read."""
    for place in PLACES:
        if (place / "index.html").is_file():
            return {
                file.relative_to(place).as_posix(): file
                for file in place.rglob("*")
                if file.is_file() and file.relative_to(place).as_posix() != UNUSED
            }
    return {}
