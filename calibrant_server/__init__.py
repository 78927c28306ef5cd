"""The server: the HTTP service and its engine, as they are installed."""
