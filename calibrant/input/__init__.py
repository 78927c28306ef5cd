"""Checked columns of a request: values, ratings, timestamps, labels by id."""
