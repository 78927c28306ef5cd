"""Ingest of posted batches: reading the request, checking its rows, and the receipt."""
