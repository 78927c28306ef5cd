"""Layout of a retained record: head, unnamed ratings by class, named ratings, and the prediction.

The prediction has time, digest of what was sent, scores, then what else there is: sum, weight, unit, case, slices. Scores take
four bytes each where these restore the same bits. In a divided format they are followed by the sum that they are divided by once
they are read (`calibrant.core.float32`).
"""

from __future__ import annotations

import numpy as np

# A format is 1 plus what differs from the plain one: scores are divided; the names of raters, or those of the prediction, are
# longer than 255 bytes and their lengths have two bytes.
PLAIN, DIVIDED, LONG_RATERS, LONG_NAMES = 1, 1, 2, 4
FORMATS = range(PLAIN, PLAIN + DIVIDED + LONG_RATERS + LONG_NAMES + 1)
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


class RecordError(ValueError):
    """The bytes are not a record of a known format."""
