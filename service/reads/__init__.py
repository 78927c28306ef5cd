"""A read: query, ETag, long poll and comparison."""
