"""Queries: from a request to the panes of its window to a result."""
