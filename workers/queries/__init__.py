"""Queries of a window, and the result kinds that compute from its panes."""
