"""Commands for development: written files, locks, bills of materials."""
