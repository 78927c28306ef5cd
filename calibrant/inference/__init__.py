"""Intervals and null references: replicates of units, resampled, and the data that two windows share."""
