"""Cases of a segmenter: errors from their tables, memberships of bins, comparison of two models."""
