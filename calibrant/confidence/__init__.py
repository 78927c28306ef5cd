"""Confidence histograms: every class's probability by reference and fine bin, and what is read from them."""
