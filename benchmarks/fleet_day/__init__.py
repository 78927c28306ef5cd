"""A day of a fleet, on a clock that the benchmark moves."""
