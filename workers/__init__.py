"""The engine: reads batches from the store's streams, merges them exactly once, computes results of queries."""
