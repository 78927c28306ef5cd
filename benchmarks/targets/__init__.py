"""Every target of speed and memory, measured in one run and printed as one table: `python -m benchmarks.targets`."""
