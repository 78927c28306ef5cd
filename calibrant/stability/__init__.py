"""Stability of an estimate as data shrink, and under each label policy."""
