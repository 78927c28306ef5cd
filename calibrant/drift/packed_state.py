"""A detector's state as bytes: exact, small, and read in every format that was ever written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import PackingError, pack, unpack
from calibrant.drift.bets import GRID
from calibrant.drift.detector import DetectorState, fresh
from calibrant.drift.dispersion import HISTORY, Dispersion
from calibrant.drift.tolerance import Tolerance

Floats = NDArray[np.float64]
FORMAT = 2
_READ_FORMATS = (1, 2)
_MAX_BYTES = 1 << 18
_FLOATS = ("log_sr", "log_evidence", "lowest")
_DISPERSION = ("history", "squares", "n", "variance", "n_cohorts", "labels")
_RECENT = 14


def pack_state(state: DetectorState) -> bytes:
    """Pack the state exactly."""
    arrays: dict[str, NDArray[Any]] = {name: getattr(state, name) for name in (*_FLOATS, "since")}
    arrays |= {
        "lower": state.tolerance.lower,
        "upper": state.tolerance.upper,
        "peak": np.array([state.peak]),
        "plain_sr": state.plain_sr,
        "caution": state.caution,
        # Read by versions that know no longer history.
        "dispersion.recent": state.dispersion.history[..., -_RECENT:],
    }
    for name in _DISPERSION:
        arrays[f"dispersion.{name}"] = np.asarray(getattr(state.dispersion, name))
    about = {
        "detector": FORMAT,
        "bets": GRID,
        "n_cohorts": state.n_cohorts,
        "last": state.last,
        "alarmed_at": state.alarmed_at,
        "acknowledged_at": state.acknowledged_at,
        "map_version": state.map_version,
        "n_held": state.n_held,
        "n_tempered": state.n_tempered,
        "n_pending": state.n_pending,
    }
    return pack(arrays, about)


def unpack_state(data: bytes) -> DetectorState:
    """Unpack what `pack_state` packed.

    Raises
    ------
    PackingError
        Damaged or other bytes, another format or another grid of bets.
    """
    arrays, about = unpack(data, largest=_MAX_BYTES)
    if about.get("detector") not in _READ_FORMATS or about.get("bets") != GRID:
        raise PackingError(f"this is not a detector in format 1 to {FORMAT} with bets {GRID}")
    try:
        return _read(arrays, about)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, PackingError):
            raise
        raise PackingError(f"not a detector: {error}") from error


def _read(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> DetectorState:
    start = fresh(Tolerance(arrays["lower"], arrays["upper"]))
    log_sr, log_evidence, lowest = (arrays[name] for name in _FLOATS)
    since, peak, n = arrays["since"], arrays["peak"], start.bets.n_bets
    if any(c.dtype != np.float64 or c.shape != (n,) for c in (log_sr, log_evidence, lowest)):
        raise PackingError("a column does not have one number per bet")
    # Minus infinity is the log of R = 0, infinity a minimum over nothing; NaN fails both comparisons.
    if not (
        (log_sr < np.inf).all() and np.isfinite(log_evidence).all() and (lowest > -np.inf).all()
    ):
        raise PackingError("a bet's numbers are beyond their range")
    plain = arrays.get("plain_sr", log_sr)
    if plain.dtype != np.float64 or plain.shape != (n,) or not (plain < np.inf).all():
        raise PackingError("the plain statistic is one number per bet")
    caution = arrays.get("caution", start.caution)
    if caution.dtype != np.float64 or caution.shape != (n,) or not (caution >= 1.0).all():
        raise PackingError("the caution is one number per bet, at least 1")
    if since.dtype != np.int64 or since.shape != (n,):
        raise PackingError("the starts of change are one whole number per bet")
    if peak.shape != (1,) or not 0.0 <= peak[0] < np.inf:
        raise PackingError("the peak is one number, not negative")
    last, alarmed, acknowledged = about["last"], about["alarmed_at"], about["acknowledged_at"]
    if any(type(value) not in (int, type(None)) for value in (last, alarmed, acknowledged)):
        raise PackingError("cohorts are whole numbers")
    version, n_cohorts = about["map_version"], about["n_cohorts"]
    if type(version) not in (str, type(None)) or type(n_cohorts) is not int or n_cohorts < 0:
        raise PackingError("a version is a name and a count a whole number")
    return DetectorState(
        tolerance=start.tolerance,
        log_sr=log_sr,
        log_evidence=log_evidence,
        lowest=lowest,
        since=since,
        peak=float(peak[0]),
        n_cohorts=n_cohorts,
        last=last,
        alarmed_at=alarmed,
        acknowledged_at=acknowledged,
        map_version=version,
        plain_sr=arrays.get("plain_sr", log_sr),
        dispersion=_dispersion(arrays, start.bets.bins),
        caution=caution,
        n_held=int(about.get("n_held", 0)),
        n_tempered=int(about.get("n_tempered", 0)),
        n_pending=int(about.get("n_pending", 0)),
    )


def _dispersion(arrays: Mapping[str, NDArray[Any]], bins: int) -> Dispersion:
    """Read the dispersion; format 1 has none, so that its next cohorts count as one unit each."""
    start = Dispersion.none((), bins)
    if "dispersion.recent" not in arrays:
        return start
    longer = {"dispersion.history": _history(arrays["dispersion.recent"]), **arrays}
    found = {name: longer[f"dispersion.{name}"] for name in _DISPERSION}
    for name, values in found.items():
        if values.dtype != np.float64 or values.shape != getattr(start, name).shape:
            raise PackingError("the dispersion does not have the shape of this version")
        if np.isinf(values).any() or (name != "history" and not (values >= 0.0).all()):
            raise PackingError("a number of the dispersion is beyond its range")
    return Dispersion(**found)


def _history(recent: NDArray[Any]) -> Floats:
    """Extend the gaps that former versions stored by cohorts that are not known."""
    missing = np.full((*recent.shape[:-1], max(0, HISTORY - recent.shape[-1])), np.nan)
    return np.concatenate([missing, recent], axis=-1)
