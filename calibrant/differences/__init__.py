"""Two windows or two models compared: one file for each kind of answer."""
