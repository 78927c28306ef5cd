"""Modules that other floors have not landed yet, so that the door can be tried."""

import importlib
import sys
from types import ModuleType

import numpy as np


def _module(name, **members):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        module = ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        setattr(importlib.import_module(parent), child, module)


_module(
    "calibrant.temperature", fit_temperature_exact=lambda batch, **options: {"temperature": 1.0}
)
_module("calibrant.maps", apply=lambda fitted, batch: np.asarray(batch.probabilities))
