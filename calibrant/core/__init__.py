"""Batches, panes, queries and views: the state and what is read from it."""
