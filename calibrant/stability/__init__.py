"""How steady an estimate is as data shrink, and under every label policy."""
