"""Segmentation: cases, confidence histograms and training losses."""
