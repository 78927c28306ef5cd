"""Simulations of every stated promise: `make guarantees` writes docs/guarantees.md."""
