"""Own edges wherever there are bins: every function, method and read that declares `bins` takes edges, or refuses them by name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.results.reads import find_reads
from calibrant_server.workers.queries.query import query_for

RNG = np.random.default_rng(5)
N, K = 240, 3
Q = RNG.dirichlet(np.ones(K), N)
P = Q[:, 1] / (Q[:, 1] + Q[:, 2])
LABELS = [[int(each) for each in RNG.choice(K, 2, p=row)] for row in Q]
Y = (RNG.uniform(size=N) < P).astype(int)
EQUAL, UNEVEN = [0, 0.2, 0.4, 0.6, 0.8, 1], [0, 0.4, 0.5, 0.55, 0.9, 1]
CASES = {"cases": [f"c{i // 40}" for i in range(N)]}
OF_BINARY: Mapping[str, Mapping[str, Any]] = {
    "compare": {"probabilities": P, "other": P**2, "labels": Y},
    "fit_map": {"probabilities": P, "labels": Y, "method": "histogram"},
    "hosmer_lemeshow": {"probabilities": P, "labels": Y},
}
RULES = {"not_taken", "type"}


def arguments(name: str, call: Callable[..., Any]) -> dict[str, Any]:
    given = OF_BINARY.get(name, {"probabilities": Q, "labels": LABELS})
    return {**given, **(CASES if name.startswith("ml1") else {})}


def functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions that have bins."""
    return {
        name: each
        for name, each in ((name, getattr(cal, name)) for name in dir(cal))
        if inspect.isfunction(each) and "bins" in inspect.signature(each).parameters
    }  # fmt: skip


def methods() -> dict[str, Callable[..., Any]]:
    """Return the methods of a pane that have bins."""
    pane = cal.Pane.fill(P, Y)
    return {
        name: each for name, each in inspect.getmembers(pane, inspect.ismethod)
        if not name.startswith("_") and "bins" in inspect.signature(each).parameters
    }  # fmt: skip


def values(found: Any) -> Any:
    return found.to_dict() if hasattr(found, "to_dict") else found


def numbers(found: Any) -> list[float]:
    """Return every number of a result, in order, without its edges."""
    if isinstance(found, Mapping):
        inner = [each for key, each in found.items() if key not in ("bin_edges", "binning")]
        return [number for each in inner for number in numbers(each)]
    if isinstance(found, list | tuple):
        return [number for each in found for number in numbers(each)]
    return [float(found)] if isinstance(found, int | float) else []


def _refusal(call: Callable[[Any], Any]) -> Violation | None:
    try:
        call(EQUAL)
    except CalibrationInputError as error:
        return error.violations[0]
    return None


def check(call: Callable[[Any], Any]) -> bool:
    """Whether own edges are taken: equal ones as their number, others as other bins. Else they are refused by name."""
    for wrong in ("five", 4.5, 0, -3):
        with pytest.raises(CalibrationInputError, match="bins"):
            call(wrong)
    refusal = _refusal(call)
    if refusal is not None:
        assert refusal.argument == "bins" and refusal.rule in RULES, refusal
        assert "Received" in refusal.detail and "number" in refusal.detail, refusal
        return False
    equal = values(call(EQUAL))
    assert numbers(equal) == pytest.approx(numbers(values(call(5))), rel=1e-9, abs=1e-12)
    assert numbers(values(call(UNEVEN))) != numbers(equal)
    with pytest.raises(CalibrationInputError, match="increasing"):
        call([0, 0.7, 0.4, 1])
    return True


@pytest.mark.parametrize("name", functions())
def test_functions(name: str) -> None:
    call = functions()[name]
    given = arguments(name, call)
    taken = check(lambda bins: call(**given, bins=bins))
    assert taken == ("Sequence" in str(inspect.signature(call).parameters["bins"]) or _is_named_bins(call))  # fmt: skip


def _is_named_bins(call: Callable[..., Any]) -> bool:
    return "Bins" in str(inspect.signature(call).parameters["bins"].annotation)


@pytest.mark.parametrize("name", methods())
def test_methods_of_a_pane(name: str) -> None:
    call = methods()[name]
    given: tuple[Any, ...] = ()
    if name == "compare":
        given = (cal.Pane.fill(P**2, Y),)
    assert check(lambda bins: call(*given, bins=bins)) == _is_named_bins(call)


WITH_BINS = [
    name
    for name, each in find_reads().items()
    if "bins" in {field.name for field in dataclasses.fields(each.query)}
]


@pytest.mark.parametrize("name", WITH_BINS)
def test_reads_take_edges_as_bin_edges_alone(name: str) -> None:
    """`bins` of a read is a number; `bin_edges` is declared, and else no parameter of the read."""
    read = find_reads()[name]
    with pytest.raises(ValueError, match="bins"):
        query_for(read, bins="0,0.5,1")
    declared = "bin_edges" in {field.name for field in dataclasses.fields(read.query)}
    assert declared == (name in ("metrics", "reliability"))
    if not declared:
        with pytest.raises(ValueError, match="bin_edges"):
            query_for(read, bin_edges="0,0.5,1")
