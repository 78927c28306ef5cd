"""Changes of calibration: comparisons of two windows, and evidence over time."""
