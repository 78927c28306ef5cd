"""Labels that look one-hot: a row with a 1 for the class and a 0 for each other class, read as ratings of classes 0 and 1.

The same numbers may be ratings of as many readers as there are classes, who all disagree in the same way. In several
rows of three classes or more that is not plausible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError

MIN_ROWS = 4
MIN_CLASSES = 3
DETAIL = (
    "Received a 1 for one class and a 0 for each other class in every row, which would count as ratings of the classes 0 and 1. "
    "Pass the index of the class (labels.argmax(axis=1)), or the same rows as label_counts."
)


def look_one_hot(
    row: NDArray[np.int64], class_index: NDArray[np.int64], count: NDArray[np.int64], k: int
) -> bool:
    """Return whether each row with ratings has `k` of them: one of class 1, all others of class 0.

    Parameters
    ----------
    row, class_index, count : ratings by row, then class
    k : number of classes
    """
    if not len(row) or len(row) % 2 or not (row[::2] == row[1::2]).all():
        return False
    first, second = class_index[::2], class_index[1::2]
    return bool(
        (first == 0).all()
        and (second == 1).all()
        and (count[::2] == k - 1).all()
        and (count[1::2] == 1).all()
        and (np.diff(row[::2]) > 0).all()
    )


def reject_one_hot(n_rows: int, k: int) -> None:
    """Reject rows that look one-hot, where there are enough of them.

    Raises
    ------
    CalibrationInputError
        At least `MIN_ROWS` of at least `MIN_CLASSES` classes.
    """
    if k >= MIN_CLASSES and n_rows >= MIN_ROWS:
        raise CalibrationInputError.at("/labels", "one_hot", DETAIL)
