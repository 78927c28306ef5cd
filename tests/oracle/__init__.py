"""Second versions, in numpy, of what the compiled kernel computes."""
