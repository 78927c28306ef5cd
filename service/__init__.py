"""The HTTP door: form of requests, keys, errors, pages. It computes nothing but `POST /v1/score`."""
