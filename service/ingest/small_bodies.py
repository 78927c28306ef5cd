"""Small JSON bodies of plain scores and labels: a short check in place of all rules, whose objects cost more than the numbers.

The batch is the one that the rules make, to the bit. Whatever is unusual or invalid is left to them.
"""

from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.ratings import Ratings
from calibrant.input.class_texts import has_numbers
from calibrant.input.one_hot import look_one_hot
from calibrant.input.row_sums import SUM_EXACT, SUM_LENIENT
from calibrant.input.score_columns import MAX_LOGIT
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.ingest.model_rules import SEGMENTATION
from calibrant_server.service.ingest.service import IngestContext
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch

# Above this size the calls of numpy cost less than the numbers.
MAX_BYTES = 4096
_SCORES = ("probabilities", "logits")
_KNOWN = {*_SCORES, "labels", "batch_id"}


def small_predictions(body: Body, context: IngestContext) -> IngestBatch | None:
    """Return the batch of a small JSON body of scores and labels; None where it must be read and checked in full."""
    config = context.config
    if config is None or config.task == SEGMENTATION or body.media_type != JSON:
        return None
    if config.label_names is not None or has_numbers(config.classes or ()):
        return None
    found = small_batch(body.data, config.task, config.n_classes)
    if found is None or found[0].n > context.settings.max_rows:
        return None
    batch, batch_id = found
    return context.batch(
        config, PREDICTIONS, batch.pack(), batch.digest(), batch.n, batch_id=batch_id
    )


def small_batch(data: bytes, task: str, n_classes: int) -> tuple[Batch, str | None] | None:
    """Return the batch of a JSON document and its id; None where it must be read and checked in full.

    >>> small_batch(b'{"probabilities": [[0.25, 0.5]], "labels": [0]}', "multiclass", 2) is None
    True
    """
    document = _document(data) if len(data) < MAX_BYTES else None
    if document is None:
        return None
    is_logits = "logits" in document
    scores = _scores(document[_SCORES[is_logits]], n_classes, is_logits)
    if scores is None:
        return None
    ratings = _ratings(document["labels"], len(scores), n_classes)
    if ratings is None:
        return None
    return Batch(task, scores, is_logits, ratings), document.get("batch_id")


def _document(data: bytes) -> dict[str, Any] | None:
    """Return an object of known fields, each once; an id of the batch is a text without escapes."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if type(found) is not dict or not found.keys() <= _KNOWN:
        return None
    has_id = "batch_id" in found
    if "labels" not in found or len(found) != 2 + has_id:
        return None
    if has_id and type(found["batch_id"]) is not str:
        return None
    # A field that is sent twice has quotes of its own.
    return found if data.count(b'"') == 2 * (len(found) + has_id) else None


def _scores(rows: Any, n_classes: int, is_logits: bool) -> NDArray[np.float64] | None:
    """Return rows of finite numbers with a fraction or exponent; probabilities are divided by a sum that is near 1."""
    if type(rows) is not list or set(map(type, rows)) != {list}:
        return None
    if set(map(len, rows)) != {n_classes} or set(map(type, chain.from_iterable(rows))) != {float}:
        return None
    scores = np.array(rows)
    lowest, highest = (-MAX_LOGIT, MAX_LOGIT) if is_logits else (0.0, 1.0)
    if not (scores.min() >= lowest and scores.max() <= highest):
        return None
    return scores if is_logits else _normalised(scores)


def _normalised(scores: NDArray[np.float64]) -> NDArray[np.float64] | None:
    total = scores.sum(axis=1)
    off = np.abs(total - 1.0)
    furthest = off.max()
    if furthest > SUM_LENIENT:
        return None
    if furthest > SUM_EXACT:
        divide = off > SUM_EXACT
        scores[divide] /= total[divide, None]
    return scores


def _ratings(labels: Any, n: int, n_classes: int) -> Ratings | None:
    """Return the ratings of rows that have a class or several, by row, then class."""
    if type(labels) is not list or len(labels) != n:
        return None
    lists = [each if type(each) is list else [each] for each in labels]
    if not all(lists) or set(map(type, chain.from_iterable(lists))) != {int}:
        return None
    counts = Counter((row, label) for row, each in enumerate(lists) for label in each)
    if not all(0 <= label < n_classes for _, label in counts):
        return None
    pairs = sorted(counts)
    row, class_index = np.array(pairs, np.int64).T.copy()
    count = np.array([counts[pair] for pair in pairs], np.int64)
    is_plain = len(pairs) != 2 * n or not look_one_hot(row, class_index, count, n_classes)
    return Ratings(row, class_index, count) if is_plain else None
