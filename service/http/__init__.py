"""HTTP: middleware, headers, bodies, conditional requests, errors and problems."""
