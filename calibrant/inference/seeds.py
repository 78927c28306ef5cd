"""The one seed of everything that is drawn at random.

Draws depend only on the metric, its number of bins and the number of draws: equal data give equal intervals and null references in the
library and in every instance of the service, whatever their order or batches.
"""

SEED = 0
