"""Pages for people: models, one model, keys, sign-in, documentation and problems."""
