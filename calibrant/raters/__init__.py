"""Raters: disagreement, label losses, label distributions and posteriors."""
