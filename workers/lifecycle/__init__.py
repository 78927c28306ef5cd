"""What happens to panes with time: sealing, rollups, expiry, baselines, export and import."""
