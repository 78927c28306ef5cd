"""`python -m service.openapi`: write the API document of the app to `openapi/openapi.json`, which is committed."""

import json
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from calibrant_server.service.app import create_app
from calibrant_server.service.settings import Settings

COMMITTED = Path(__file__).resolve().parents[2] / "openapi" / "openapi.json"


def written(app: FastAPI) -> str:
    """Return the document as it is committed: compact, keys sorted, one line per operation or component."""
    return _lines(app.openapi(), 3) + "\n"


def _lines(value: Any, depth: int) -> str:
    """Write the members of objects down to `depth` on lines of their own."""
    if depth == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    members = [f"{json.dumps(name)}:{_lines(value[name], depth - 1)}" for name in sorted(value)]
    return "{\n" + ",\n".join(members) + "\n}"


def main() -> None:
    """Write the committed document again."""
    COMMITTED.write_text(written(create_app(Settings())), encoding="utf-8")
    print(f"wrote {COMMITTED}", file=sys.stderr)


if __name__ == "__main__":
    main()
