"""Old days in files: the same results to the bit, whatever is moved, changed, deleted or killed, and whenever."""
