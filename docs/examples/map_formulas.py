"""Apply a calibration map without Calibrant: `recalibrate(fitted, given)`.

`fitted` is the response of `GET calibration-map` or `GET maps/current`. `given` is a row of probabilities for the scope `full`, otherwise
one probability. Exponents are limited to ±700, because Python raises an error where others round to 0 or infinity.
"""

from bisect import bisect_left, bisect_right
from math import exp, log


def recalibrate(fitted, given):
    """Return the recalibrated row, or the recalibrated probability."""
    method, parameters = fitted["method"], fitted["parameters"]
    if "classes" in parameters:
        return classes_against_the_rest(OF_SCORES[method], parameters["classes"], given)
    formulas = OF_ROWS if fitted["scope"] == "full" else OF_SCORES
    return formulas[method](parameters, given)


def classes_against_the_rest(formula, maps, row):
    pairs = zip(maps, row, strict=True)
    mapped = [p if own is None else formula(own, p) for own, p in pairs]
    total = sum(mapped)
    return [value / total if total > 0 else 1 / len(row) for value in mapped]


def temperature_of_row(parameters, row):
    power = [p ** (1 / parameters["temperature"]) for p in row]
    return [value / sum(power) for value in power]


def vector(parameters, row):
    rows = zip(parameters["slopes"], parameters["intercepts"], row, strict=True)
    return softmax([a * log(max(p, parameters["clip"])) + b for a, b, p in rows])


def class_temperature(parameters, row):
    pairs = zip(parameters["temperatures"], row, strict=True)
    return softmax([log(max(p, parameters["clip"])) / t for t, p in pairs])


def dirichlet(parameters, row):
    x = [log(max(p, parameters["clip"])) for p in row]
    lines = zip(parameters["matrix"], parameters["intercepts"], strict=True)
    return softmax([sum(w * v for w, v in zip(line, x, strict=True)) + b for line, b in lines])


def softmax(z):
    power = [exp(value - max(z)) for value in z]
    return [value / sum(power) for value in power]


def temperature(parameters, p):
    beta = 1 / parameters["temperature"]
    return p**beta / (p**beta + (1 - p) ** beta)


def platt(parameters, p):
    p = min(max(p, parameters["clip"]), 1 - parameters["clip"])
    linear = parameters["slope"] * log(p / (1 - p)) + parameters["intercept"]
    return 1 / (1 + exp(min(-linear, 700)))


def beta(parameters, p):
    p = min(max(p, parameters["clip"]), 1 - parameters["clip"])
    linear = parameters["a"] * log(p) - parameters["b"] * log(1 - p) + parameters["c"]
    return 1 / (1 + exp(min(-linear, 700)))


def lines_between_points(parameters, p):
    x, y = parameters["x"], parameters["y"]
    if p <= x[0] or p >= x[-1]:
        return y[0] if p <= x[0] else y[-1]
    j = bisect_right(x, p)
    return y[j - 1] + (y[j] - y[j - 1]) * (p - x[j - 1]) / (x[j] - x[j - 1])


def value_of_bin(parameters, p):
    edges = parameters["edges"]
    return parameters["values"][bisect_left(edges, p, 1, len(edges) - 1) - 1]


OF_ROWS = {
    "temperature": temperature_of_row,
    "vector": vector,
    "class_temperature": class_temperature,
    "dirichlet": dirichlet,
}
OF_SCORES = {
    "temperature": temperature,
    "platt": platt,
    "beta": beta,
    "isotonic": lines_between_points,
    "spline": lines_between_points,
    "histogram": value_of_bin,
    "scaling_binning": value_of_bin,
}
