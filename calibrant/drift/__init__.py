"""Did calibration change? Comparisons of two windows; evidence over time stands beside them."""
