"""Results of the library: numbers that print, convert to plain values and plot.

The dictionaries are those that the service returns under the same names.
"""

from calibrant.metrics.estimate import Estimate
from calibrant.results.calibration_map import CalibrationMap
from calibrant.results.comparison import Comparison, Difference
from calibrant.results.decision_curve import DecisionCurve
from calibrant.results.reliability_table import ReliabilityTable
from calibrant.results.report import MultilabelReport, Report, SlicedReport
from calibrant.results.temperature import Temperature

__all__ = [
    "CalibrationMap",
    "Comparison",
    "DecisionCurve",
    "Difference",
    "Estimate",
    "MultilabelReport",
    "ReliabilityTable",
    "Report",
    "SlicedReport",
    "Temperature",
]
