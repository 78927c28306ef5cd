"""`python -m benchmarks.ingest_steps`: CPU time of a batch by step, in one process.

The steps are those of service and worker on the same bytes, in order. The unit is the reference of `benchmarks.end_to_end`:
`orjson.loads` and `numpy.asarray` of the bytes. HTTP and the store are not included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import N_CLASSES, body, floor_s
from calibrant import Batch, Pane, PaneSpec
from calibrant_server.service.http.bodies import Body
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.settings import Settings

MEDIA = {"json": "application/json", "ndjson": "application/x-ndjson"}
SPEC = PaneSpec("multiclass", N_CLASSES)


def timed(step: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median CPU seconds of a step, and its result."""
    times, made = [], None
    for _ in range(repeats):
        started = time.process_time()
        made = step()
        times.append(time.process_time() - started)
    return float(np.median(times)), made


def steps(n: int, form: str, repeats: int) -> list[tuple[str, float]]:
    """Return the CPU seconds of each step, the reference first."""
    data, settings = body(n, form, 0), Settings()
    floor = float(np.median([floor_s(data, form, 1) for _ in range(repeats)]))
    read_s, posted = timed(lambda: read_columns(Body(MEDIA[form], data), settings), repeats)
    check_s, checked = timed(lambda: Batch.from_columns(posted.columns), repeats)
    pack_s, packed = timed(checked.batch.pack, repeats)
    digest_s, _ = timed(checked.batch.digest, repeats)
    unpack_s, _ = timed(lambda: Batch.unpack(packed), repeats)

    def fill() -> Pane:
        pane = Pane(SPEC)
        pane.fill_batch(Batch.unpack(packed))
        return pane

    fill_s, delta = timed(fill, repeats)
    held = Pane(SPEC)
    merge_s, _ = timed(lambda: held.merge(delta), repeats)
    parts_s, _ = timed(held.parts, repeats)
    return [
        ("floor", floor), ("read", read_s), ("check", check_s), ("pack", pack_s), ("digest", digest_s),
        ("unpack", unpack_s), ("fill", fill_s - unpack_s), ("merge into the held pane", merge_s),
        ("pack the pane, once a commit", parts_s),
    ]  # fmt: skip


def main(rows: list[int], repeats: int) -> None:
    """Print a table."""
    console = Console()
    for n in rows:
        table = Table("step", *(f"{form}: ms (over floor)" for form in MEDIA), title=f"{n:,} rows")
        found = [steps(n, form, repeats) for form in MEDIA]
        for each in zip(*found, strict=True):
            shown = (
                f"{1e3 * seconds:.2f} ({seconds / made[0][1]:.2f})"
                for (_, seconds), made in zip(each, found, strict=True)
            )
            table.add_row(each[0][0], *shown)
        console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="*", default=[100, 10_000])
    parser.add_argument("--repeats", type=int, default=15)
    chosen = parser.parse_args()
    main(chosen.rows, chosen.repeats)
