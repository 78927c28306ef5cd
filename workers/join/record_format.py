"""Layout of a retained record: head, unnamed ratings by class, named ratings, and the prediction.

The prediction has time, digest of what was sent, scores, then what else there is: sum, weight, unit, case, slices. Scores take
four bytes each where these restore the same bits. In a divided format they are followed by the sum that they are divided by once
they are read (`calibrant.core.float32`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.core.edge_rules import N_RULES

# A format is 1 plus what differs from the plain one: scores are divided; the names of raters, or those of the prediction, are
# longer than 255 bytes and their lengths have two bytes; and the rule by which scores are on an edge of bins, in two bits.
PLAIN, DIVIDED, LONG_RATERS, LONG_NAMES = 1, 1, 2, 4
EDGE_RULE_BIT = 3
FORMATS = range(PLAIN, PLAIN + (N_RULES << EDGE_RULE_BIT))
# The rule as a predictions' flags have it, above those of the head.
RULE_FLAG_BIT = 8
MAX_SHORT = 255
# Flags of the head. Those besides `PREDICTED` and `DELETED` describe the prediction.
PREDICTED, LOGITS, NARROW, DELETED, WEIGHTED, UNIT, CASE, SLICED = (1 << bit for bit in range(8))
HEAD = np.dtype(
    [("format", "u1"), ("flags", "u1"), ("since_s", "<u4"), ("n_scores", "<u2"), ("n_unnamed", "<u2"),
     ("n_ratings", "<u2"), ("n_slices", "<u2"), ("delay", "<u2")]
)  # fmt: skip
COUNT = np.dtype([("class_index", "<u2"), ("n", "<u4")])
# A rating is between the length and the name of its rater.
RATING = np.dtype([("class_index", "<i4"), ("revision", "<i4"), ("order", "<i8")])
PREDICTION = np.dtype([("event_us", "<i8"), ("sent", "<u8")])
NUMBER = np.dtype("<f8")
# Ratings of a class that labels may add; those sent with the prediction also fit in the four bytes.
MAX_RATINGS_OF_CLASS = 2**31 - 1


def with_rules(flags: Any, formats: Any) -> Any:
    """Return flags of a head with the rule of edges that its format names: integers, or arrays of them."""
    return flags | ((formats - PLAIN) >> EDGE_RULE_BIT) << RULE_FLAG_BIT


def rules_in_format(flags: Any) -> Any:
    """Return what the rule of a prediction's flags adds to the format of its record."""
    return flags >> RULE_FLAG_BIT << EDGE_RULE_BIT


class RecordError(ValueError):
    """The bytes are not a record of a known format."""
