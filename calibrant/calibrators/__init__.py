"""Calibration maps. The registry finds what a file of this folder defines as `MAPS`.

`fit` returns plain numbers from which any client can compute the map; `apply` computes it here. Names are imported when they are first used:
metrics need the solver alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrant.calibrators.applying import apply
    from calibrant.calibrators.fitting import fit
    from calibrant.calibrators.map_method import MapMethod, Options

    MAPS: dict[str, MapMethod]

_PLACES = {
    "apply": "applying",
    "fit": "fitting",
    "MapMethod": "map_method",
    "Options": "map_method",
}

__all__ = ["MAPS", "MapMethod", "Options", "apply", "fit"]


def __getattr__(name: str) -> Any:
    if name == "MAPS":
        found = import_module(f"{__name__}.map_method").map_methods()
    elif name in _PLACES:
        found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
