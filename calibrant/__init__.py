"""The science of Calibrant: numbers in, numbers out.

No clock, no network, no store, no logging below this line, so that a notebook, an edge client and the service
compute the same answer from the same predictions.
"""
