"""Losses over one temperature and over one for each of two classes, from cells and confidence histograms."""
