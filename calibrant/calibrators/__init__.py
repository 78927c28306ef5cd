"""Calibration maps. The registry finds what a file of this folder defines as `MAPS`.

`fit` returns plain numbers from which any client can compute the map; `apply` computes it here.
"""

from calibrant.calibrators.base import MapMethod, Options
from calibrant.calibrators.fitting import apply, fit
from calibrant.calibrators.registry import map_methods

MAPS = map_methods()

__all__ = ["MAPS", "MapMethod", "Options", "apply", "fit"]
