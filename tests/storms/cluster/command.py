"""`python -m tests.storms cluster`: storms on a cluster until enough failovers are recorded.

After each storm its numbers are written to `rounds.json` of the state folder; a run that was interrupted continues with the
next one. It fails at the first storm that counts wrongly.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.storms.cluster.mutants import MUTANTS
from tests.storms.cluster.network import reason_to_skip
from tests.storms.cluster.round import Plan, cluster_storm
from tests.storms.rounds import as_record

MEMORY = Path("/dev/shm")
SUMS = (
    "failovers",
    "lost",
    "lost_batches",
    "twice",
    "dead_letters",
    "parked",
    "moves",
    "moved_slots",
    "new_models",
)


def main(arguments: list[str]) -> int:
    """Read the arguments, run storms, print the numbers."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plan = Plan(
        durability=given.durability, n_faults=given.faults, is_double=given.double,
        has_slow_disk=given.slow_disk, mutants=tuple(given.mutant),
    )  # fmt: skip
    given.state.mkdir(parents=True, exist_ok=True)
    path = given.state / "rounds.json"
    records: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    if reason := reason_to_skip():
        print(f"no faults of the network: {reason}", file=sys.stderr)
    while not _is_enough(records, given):
        directory = Path(tempfile.mkdtemp(prefix="storm-", dir=MEMORY if MEMORY.is_dir() else None))
        found = cluster_storm(plan, given.first_seed + len(records), directory)
        records.append(as_record(found))
        print(json.dumps(records[-1]), flush=True)
        path.write_text(json.dumps(records, indent=1))
        if not found.is_exact:
            kept = given.state / f"files-{found.seed}"
            shutil.copytree(directory, kept, ignore=shutil.ignore_patterns("s"), dirs_exist_ok=True)
            print(f"not exact; files are in {kept}", file=sys.stderr)
        shutil.rmtree(directory)
        if not found.is_exact:
            return 1
    _print_totals(records)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.storms cluster", description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("cluster-storm"))
    parser.add_argument("--failovers", type=int, default=100, help="in all rounds")
    parser.add_argument("--rounds", type=int, help="instead of a number of failovers")
    parser.add_argument("--faults", type=int, default=6, help="of each shard in a round")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--durability", choices=["replicated", "everysec"], default="replicated")
    parser.add_argument("--double", action="store_true", help="kill masters with their replicas")
    parser.add_argument("--slow-disk", action="store_true", help="each fdatasync takes 1.5 s")
    parser.add_argument("--mutant", action="append", choices=MUTANTS, default=[])
    return parser


def _is_enough(records: list[dict[str, Any]], given: argparse.Namespace) -> bool:
    if given.rounds is not None:
        return len(records) >= given.rounds
    return sum(record["failovers"] for record in records) >= given.failovers


def _print_totals(records: list[dict[str, Any]]) -> None:
    faults, acknowledged = Counter[str](), Counter[str]()
    for record in records:
        faults.update(record["faults"])
        acknowledged.update(record["acknowledged"])
    print(f"{len(records)} storms, {faults.total()} faults: {dict(sorted(faults.items()))}")
    print(f"{acknowledged.total()} acknowledged: {dict(sorted(acknowledged.items()))}")
    print({name: sum(record.get(name, 0) for record in records) for name in SUMS})
    longest_s = max((record["minority_accepted_s"] for record in records), default=0)
    codes = sorted({code for record in records for code in record["minority_rejected_with"]})
    print(
        f"a master without the other nodes accepted writes for at most {longest_s} s, then {codes}"
    )
    for name, reason in {k: v for r in records for k, v in r["skipped"].items()}.items():
        print(f"not run: {name}: {reason}")
