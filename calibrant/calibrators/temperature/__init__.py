"""Temperature that fits the labels best, from stored profiles and from rows."""
