"""The engine: takes batches from the store's streams, merges them exactly once, answers questions about them."""
