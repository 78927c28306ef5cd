"""The science of Calibrant: numbers in, numbers out.

No clock, no network, no store, no logging below this line, so that a notebook, an edge client and the service
compute the same answer from the same predictions.
"""

from calibrant.batch import Batch
from calibrant.errors import CalibrationInputError, Offence
from calibrant.histogram import Histogram
from calibrant.pane import Pane
from calibrant.spec import PaneSpec

__all__ = ["Batch", "CalibrationInputError", "Histogram", "Offence", "Pane", "PaneSpec"]
