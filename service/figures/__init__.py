"""Figures drawn from the JSON answers. One file a figure; `ground` holds what they share."""
