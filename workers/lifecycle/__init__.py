"""Lifecycle of panes: sealing, rollups, expiry, baselines, export and import."""
