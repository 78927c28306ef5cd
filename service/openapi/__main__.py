"""`python -m service.openapi`: write the API document of the app to `openapi/openapi.json`, which is committed."""

import json
import sys
from pathlib import Path

from fastapi import FastAPI

from calibrant_server.service.app import create_app
from calibrant_server.service.settings import Settings

COMMITTED = Path(__file__).resolve().parents[2] / "openapi" / "openapi.json"


def written(app: FastAPI) -> str:
    """Return the document as the text that is committed: keys sorted, two spaces, one line end."""
    return json.dumps(app.openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the committed document anew."""
    COMMITTED.parent.mkdir(exist_ok=True)
    COMMITTED.write_text(written(create_app(Settings())), encoding="utf-8")
    print(f"wrote {COMMITTED}", file=sys.stderr)


if __name__ == "__main__":
    main()
