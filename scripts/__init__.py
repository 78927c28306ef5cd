"""Commands for development: written files, locks, bundles."""
