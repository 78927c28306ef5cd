"""The store: connection, key names, records, registry, and the scripts that change them."""
