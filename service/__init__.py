"""The HTTP service: form of requests, keys, errors, pages. It computes nothing except `POST /v1/score`."""
