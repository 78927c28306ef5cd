"""Intervals and nulls: replicates of units, resampled, and what two windows have in common."""
