"""Structured fuzzing of the service in process: valid requests, changed at random, and what must hold of every response."""
