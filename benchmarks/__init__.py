"""Ratios, measured side by side in one run; see README.md."""
