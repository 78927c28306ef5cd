"""Run storms until enough faults and batches are recorded: `python -m tests.storms --progress storms.json`.

A storm takes about three minutes. After each, its numbers are written to the progress file; a run that was interrupted
continues with the next one. `python -m tests.storms cluster` does the same on a cluster. It fails at the first storm
that is not exact, and keeps that storm's directory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.storms.cluster import command
from tests.storms.rounds import SETUPS, as_record, storm

STOPS_S = [4.0, 4.0, 4.0, 60.0]
# Its fsync is never slow: a store with `everysec` may lose a second if its disk is slow while it dies.
MEMORY = Path("/dev/shm")


def main() -> int:
    """Read the arguments, run storms, print the numbers."""
    parser = argparse.ArgumentParser(description="Kill and stop every process while clients send.")
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--batches", type=int, default=5_000)
    parser.add_argument("--kills", type=int, default=8, help="of each process in a storm")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--setup", help="run only ways to run whose name contains this")
    parser.add_argument("--progress", type=Path, default=Path("storms.json"))
    given = parser.parse_args()
    records = json.loads(given.progress.read_text()) if given.progress.exists() else []
    setups = [each for each in SETUPS if (given.setup or "") in f"{each.name} {each.durability}"]
    while len(records) < len(setups) or not _is_enough(records, given.faults, given.batches):
        seed, place = divmod(len(records), len(setups))
        setup = setups[place]
        everysec = setup.durability == "everysec" and MEMORY.is_dir()
        directory = Path(tempfile.mkdtemp(prefix="storm-", dir=MEMORY if everysec else None))
        n_batches = given.batches // len(setups) + 1
        found = storm(setup, given.first_seed + seed, directory, n_batches, given.kills, STOPS_S)
        records.append(as_record(found))
        print(json.dumps(records[-1]), flush=True)
        given.progress.write_text(json.dumps(records, indent=1))
        if not found.is_exact:
            print(f"not exact; files are in {directory}", file=sys.stderr)
            return 1
        shutil.rmtree(directory)
    _print_totals(records)
    return 0


def _is_enough(records: list[dict[str, Any]], n_faults: int, n_batches: int) -> bool:
    faults, acknowledged = _totals(records)
    return faults.total() >= n_faults and acknowledged.total() >= n_batches


def _totals(records: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str]]:
    faults, acknowledged = Counter[str](), Counter[str]()
    for record in records:
        faults.update(record["faults"])
        acknowledged.update(record["acknowledged"])
    return faults, acknowledged


def _print_totals(records: list[dict[str, Any]]) -> None:
    faults, acknowledged = _totals(records)
    print(f"{len(records)} storms, {faults.total()} faults: {dict(sorted(faults.items()))}")
    print(f"{acknowledged.total()} acknowledged: {dict(sorted(acknowledged.items()))}")
    ends = ("lost", "twice", "dead_letters", "parked")
    print({name: sum(record[name] for record in records) for name in ends})


if __name__ == "__main__":
    sys.exit(command.main(sys.argv[2:]) if sys.argv[1:2] == ["cluster"] else main())
