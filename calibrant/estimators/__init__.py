"""Estimators that metrics share, on cells in order of score: kernels, smoothing, isotonic recalibration, cumulative sums, ROC."""
