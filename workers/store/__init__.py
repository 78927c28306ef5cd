"""What is kept in the store: names of keys, records, the registry, the scripts that change them."""
