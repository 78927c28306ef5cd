"""Calibration maps. One file each; what a file of this folder defines as `MAP` is found and offered.

`fit` answers with plain numbers from which any client can compute the map; `apply` computes it here.
"""

from calibrant.maps.base import Map, Options
from calibrant.maps.fitting import apply, fit, needs
from calibrant.maps.registry import found

MAPS = found()

__all__ = ["MAPS", "Map", "Options", "apply", "fit", "needs"]
