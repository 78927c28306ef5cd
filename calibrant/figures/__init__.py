"""Figures of the JSON responses. One file per figure; `base` contains what they share."""
