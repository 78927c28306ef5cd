"""`calibrant federate`: share the totals of a site's models with a centre, as a contract allows."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.terminal import fail, log_events, output, stop_event
from calibrant.client import Client, ClientError
from calibrant.client.federation.contract import Contract
from calibrant.client.federation.forwarder import FederationError, Forwarder, Ledger
from calibrant.core.errors import CalibrationInputError

log = logging.getLogger("calibrant.federation")


def federate(
    contract: Annotated[Path, typer.Argument(help="JSON file: what is shared")],
    site: Annotated[str, typer.Option(help="address of the site's service")],
    centre: Annotated[str, typer.Option(help="address of the centre's service")],
    ledger: Annotated[
        Path, typer.Option(help="file with the secret key and the terms of the site; keep it")
    ],
    site_key: Annotated[
        str | None, typer.Option(envvar="CALIBRANT_SITE_KEY", help="key of the site, scope admin")
    ] = None,
    centre_key: Annotated[
        str | None,
        typer.Option(envvar="CALIBRANT_CENTRE_KEY", help="key of the centre, scopes ingest, read"),
    ] = None,
    interval: Annotated[float, typer.Option(min=1, help="seconds between two rounds")] = 600.0,
    once: Annotated[
        bool, typer.Option("--once", help="one round; exit code 1 if it fails")
    ] = False,
) -> None:
    """Send each complete day once to a centre. No row leaves the site."""
    log_events()
    stopped = stop_event()
    try:
        agreed = Contract.from_file(contract)
        book = Ledger(ledger, agreed.site)
        with (
            Client(site, site_key) as at_site,
            Client(centre, centre_key) as at_centre,
            closing(at_site.connect()) as reads,
            closing(at_centre.connect()) as writes,
        ):
            forwarder = Forwarder(agreed, reads, writes, book)
            while True:
                found = _round(forwarder, once)
                if once or stopped.wait(interval):
                    break
    except (
        CalibrationInputError,
        FederationError,
        ClientError,
        ImportError,
        OSError,
        ValueError,
    ) as error:
        fail(str(error))
    output().print(f"totals sent: {found}", markup=False, highlight=False)


def _round(forwarder: Forwarder, once: bool) -> int:
    """Run a round; the next one continues after a service that was away."""
    try:
        found = forwarder.round()
    except ClientError as error:
        if once:
            raise
        log.warning("round_failed error=%s", error)
        return 0
    log.info("round_ended sent=%s", found)
    return found
