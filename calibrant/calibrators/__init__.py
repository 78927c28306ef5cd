"""Calibration maps. The registry finds what a file of this folder defines as `MAPS`.

`fit` returns plain numbers from which any client can compute the map; `apply` computes it here.
"""

from calibrant.calibrators.applying import apply
from calibrant.calibrators.fitting import fit
from calibrant.calibrators.map_method import MapMethod, Options, map_methods

MAPS = map_methods()

__all__ = ["MAPS", "MapMethod", "Options", "apply", "fit"]
