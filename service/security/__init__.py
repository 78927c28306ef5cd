"""Keys, scopes and limits."""
