"""`python -m demo [--keep] [--port PORT]`."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.client import Client
from demo.digits import Deployment, play_deployment
from demo.play import DAYS, LOGISTIC, NETWORK, Timeline, declare_models, posts, send_all
from demo.report import Report
from demo.server import DemoFailed, Server

OUTPUT = Path("demo-output")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the service running")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--days", type=int, default=DAYS, help=f"default: {DAYS}")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    OUTPUT.mkdir(exist_ok=True)
    server = Server(OUTPUT / "server.log", options.port)
    try:
        run(server, console, options.days)
    except (DemoFailed, httpx.HTTPError) as failure:
        console.print(f"[bold red]The demo failed:[/bold red] {failure}", soft_wrap=True)
        console.print(f"The last lines of {server.log}:\n{server.last_words()}", markup=False)
        server.stop()
        return 1
    except BaseException:
        server.stop()
        raise
    return finish(server, console, options.keep)


def run(server: Server, console: Console, days: int = DAYS) -> None:
    """Train the models, start the service, send the data, report."""
    with console.status("training two classifiers of handwritten digits"):
        deployment = play_deployment()
    with console.status("starting the service with its embedded store"):
        server.start()
    console.print(f"The service runs on {server.url}; its log is {server.log}")
    client = Client(server.url)
    try:
        timeline = Timeline.until(datetime.now(UTC), days)
        play(client, console, deployment, timeline)
        Report(client, console, deployment, timeline, OUTPUT).print_everything()
    finally:
        client.close()


def play(client: Client, console: Console, deployment: Deployment, timeline: Timeline) -> None:
    """Send the batches of all days, with a progress bar in a terminal."""
    declare_models(client)
    sent = posts(deployment, timeline)
    console.print(
        f"Playing {timeline.days} days of two deployed models: {len(deployment.digit)} images each, "
        f"3 to 5 raters; {NETWORK} as predictions (site A) and panes filled at the edge "
        f"(site B), {LOGISTIC} as histograms"
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("batches", total=len(sent))
        send_all(client, sent, lambda: progress.advance(task))


def finish(server: Server, console: Console, keep: bool) -> int:
    console.print()
    if keep:
        assert server.process is not None
        pid = server.process.pid
        console.print(f"Open {server.url}/ in a browser: the page of all models", style="bold")
        console.print(f"The service stays at {server.url}: paste the curls, then `kill {pid}`")
        console.print(f"Its documentation: {server.url}/docs; its data: {server.data}")
        return 0
    try:
        server.stop()
    except DemoFailed as failure:
        console.print(f"[bold red]The demo failed:[/bold red] {failure}")
        return 1
    console.print(
        "The service has stopped. `make demo KEEP=1` leaves it running, for its pages and the curls."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
