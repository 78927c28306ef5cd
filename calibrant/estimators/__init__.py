"""What metrics are read with, from cells in order: kernels, smoothing, isotonic recalibration, cumulative sums, ROC."""
