"""Fuzz every operation of a real service from its API document: `make fuzz`.

Each round runs schemathesis once, with its number as the seed, against `python -m service` on loopback. The service's own
counter gives the number of responses by operation and status. After each round the progress file is written; a run that was
interrupted continues with the next round, until every operation together had the requests that are asked for.

It fails where a response breaks the document, or has a status of 500 or more that is not 503. (503 has `Retry-After`, which
the document requires.)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from demo.server import Server

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "openapi" / "openapi.json"
SERIES = re.compile(
    r'^calibrant_requests_total\{operation="(\w+)",status="(\d+)"\} (\S+)$', re.MULTILINE
)
# `negative_data_rejection` and `positive_data_acceptance` ask for more than a document can say: rules between fields.
CHECKS = (
    "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
    "unsupported_method,allow_header_conformance"
)
# Its response has no end.
LEFT_OUT = ("streamAlarms",)
EXAMPLES_OF_A_ROUND = 8
MODEL = "digits"


@dataclass
class Progress:
    """Rounds that were run, and their responses by operation and status."""

    rounds: int = 0
    failed_rounds: list[int] = field(default_factory=list)
    responses: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Progress:
        """Read the file of an earlier run; without one, begin."""
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    @property
    def n_responses(self) -> int:
        """Number of all responses."""
        return sum(self.responses.values())

    @property
    def by_status(self) -> Counter[str]:
        """Number of responses by status."""
        found: Counter[str] = Counter()
        for name, n in self.responses.items():
            found[name.partition(" ")[2]] += n
        return found

    @property
    def server_errors(self) -> dict[str, int]:
        """Responses that must not be, by operation and status."""
        return {
            name: n
            for name, n in self.responses.items()
            if name.partition(" ")[2] >= "500" and not name.endswith(" 503")
        }


def responses_of(server: Server) -> Counter[str]:
    """Return the number of responses of a service by operation and status."""
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    return Counter(
        {f"{operation} {status}": int(float(n)) for operation, status, n in SERIES.findall(text)}
    )


def prepare(server: Server) -> None:
    """Give the service a model with data, so that reads have something to compute."""
    with httpx.Client(base_url=f"{server.url}/v1/models/{MODEL}", timeout=90) as client:
        client.put("", json={"task": "multiclass", "classes": 3, "slices": {"site": ["A", "B"]}})
        rows = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]] * 20
        body = {
            "probabilities": rows,
            "labels": [0, 1, 1] * 20,
            "ids": [f"p{i}" for i in range(60)],
        }
        client.post("/predictions", json=body, headers={"Prefer": "wait=60"}).raise_for_status()


def run_round(schemathesis: Path, server: Server, number: int, report: Path) -> bool:
    """Run schemathesis once; return whether every response followed the document."""
    left_out = [f"--exclude-operation-id={each}" for each in LEFT_OUT]
    phases = "examples,coverage,fuzzing" if number == 0 else "examples,fuzzing"
    command = [
        *(str(schemathesis), "run", str(DOCUMENT), f"--url={server.url}", f"--seed={number}"),
        *(f"--checks={CHECKS}", f"--phases={phases}", f"--max-examples={EXAMPLES_OF_A_ROUND}"),
        *("--workers=1", "--request-timeout=120", "--suppress-health-check=all", "--no-shrink"),
        *("--continue-on-failure", "--warnings=off", *left_out),
    ]
    hooks = os.environ | {"SCHEMATHESIS_HOOKS": "scripts.fuzz_hooks", "PYTHONPATH": str(ROOT)}
    with report.open("wb") as out:
        ended = subprocess.run(command, stdout=out, stderr=out, env=hooks, cwd=ROOT, check=False)
    return ended.returncode == 0


def main() -> None:
    """Read the arguments, run rounds, and report."""
    parser = argparse.ArgumentParser(description="Fuzz a real service from its API document.")
    parser.add_argument("--schemathesis", type=Path, default=Path(".venv-fuzz/bin/schemathesis"))
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--output", type=Path, default=Path("fuzz-output"))
    given = parser.parse_args()
    given.schemathesis = given.schemathesis.absolute()
    given.output.mkdir(exist_ok=True)
    file = given.output / "progress.json"
    progress, started = Progress.read(file), time.monotonic()
    server = Server(given.output / "service.log")
    server.start()
    try:
        prepare(server)
        before = responses_of(server)
        while progress.n_responses < given.requests and time.monotonic() - started < given.seconds:
            report = given.output / f"round-{progress.rounds}.txt"
            if not run_round(given.schemathesis, server, progress.rounds, report):
                progress.failed_rounds.append(progress.rounds)
            now = responses_of(server)
            progress.responses = dict(Counter(progress.responses) + (now - before))
            before, progress.rounds = now, progress.rounds + 1
            file.write_text(json.dumps(asdict(progress), indent=1))
            print(f"round {progress.rounds}: {progress.n_responses} responses", flush=True)
    finally:
        server.stop()
    print(f"by status: {dict(sorted(progress.by_status.items()))}")
    if progress.server_errors or progress.failed_rounds:
        sys.exit(
            f"failed: {progress.server_errors} rounds {progress.failed_rounds}, see {given.output}"
        )


if __name__ == "__main__":
    main()
