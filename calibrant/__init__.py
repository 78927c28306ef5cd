"""The science of Calibrant: numbers in, numbers out.

No clock, no network, no store, no logging below this line, so that a notebook, an edge client and the service
compute the same answer from the same predictions.
"""

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.histogram import Histogram
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec

__all__ = ["Batch", "CalibrationInputError", "Histogram", "Pane", "PaneSpec", "Violation"]
