"""Columns of a request, checked: values, ratings, instants, labels by id."""
