"""Stored rows: one codec for rows of time slices and samples, and how rows are filled, cancelled and thinned."""
