"""Pages for people: documentation and problems."""
