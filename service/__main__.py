"""`python -m service`: serve over HTTP."""

import logging
import os
import sys

# Matrices here are small, and threads of a linear algebra library would wait for each other on busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import uvicorn
from pydantic import ValidationError

from service.app import create_app
from service.auth import KeysUnreadable, is_loopback, load_keyring
from service.engine import engine_settings
from service.settings import Settings
from workers.memory import settle
from workers.settings import SettingsError

SHUTDOWN_S = 15  # long polls are not waited for any longer


def main() -> None:
    """Serve until told to stop; refuse to be reachable from elsewhere without keys."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        settings = Settings()
        engine_settings(settings)
        open_to_others = load_keyring(settings).is_open and not is_loopback(settings.host)
    except (ValidationError, SettingsError, KeysUnreadable) as error:
        sys.exit(f"calibrant: {error}")
    if open_to_others:
        sys.exit(
            f"calibrant: no keys are configured, so the service does not listen on {settings.host}.\n"
            "Listen on 127.0.0.1, or set CALIBRANT_KEYS_FILE (with CALIBRANT_CREATE_KEY=true a first "
            "key is made) or CALIBRANT_KEYS."
        )
    app = create_app(settings)
    settle()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        server_header=False,
        log_config=None,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


if __name__ == "__main__":
    main()
