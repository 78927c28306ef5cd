"""Processes of the service without one of its guards; a storm must find each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from calibrant_server.workers import supervisor
from calibrant_server.workers.store.script import AsyncScript, scripts
from tests.forking import run_module
from tests.workers.processes import EverybodysLeases, without_token_check

NO_WAIT, NO_TOKEN = "no WAIT", "no token"
# Not a mutant, but a harder test of the token: leases are advisory, and each worker works on all partitions.
NO_LEASE = "no lease"
MUTANTS = (NO_WAIT, NO_TOKEN, NO_LEASE)


def target_with(mutants: Sequence[str]) -> partial[None]:
    """Return what a process does with its module, without these guards."""
    assert set(mutants) <= set(MUTANTS)
    return partial(run_mutant, tuple(mutants))


def run_mutant(mutants: Sequence[str], module: str) -> None:
    """Run a module without these guards. Called in its process, before the module is run."""
    if NO_WAIT in mutants:
        AsyncScript.run_replicated = _run_without_waiting  # type: ignore[method-assign]
    if NO_TOKEN in mutants:
        changed = without_token_check()
        found = scripts()
        assert isinstance(found, dict)
        found.update(changed)
    if NO_LEASE in mutants:
        supervisor.Leases = EverybodysLeases  # type: ignore[attr-defined]
    run_module(module)


async def _run_without_waiting(
    script: AsyncScript, keys: Sequence[str], args: Sequence[object], touched: str
) -> object:
    return await script(keys, args)
