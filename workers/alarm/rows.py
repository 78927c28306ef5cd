"""The tables of a cohort from its retained records: who said what of which unit, whole rows, every pane of the cohort.

Read when the cohort is whole, in the commit that lets detectors see it. Where every prediction came with an id they
stand in place of the panes' tables; where some did not, only what is said of single raters comes from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.core.batch import Batch, Votes
from calibrant.drift.agreement import krippendorff_alpha
from calibrant.drift.row_tables import row_table
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.alarm.active_map import InForce
from calibrant_server.workers.alarm.cohorts import RATER, DetectorCohort, Seen, detector_name
from calibrant_server.workers.alarm.settings import AlarmSettings
from calibrant_server.workers.ingest.retained_record import Facts, Prediction, batches_of
from calibrant_server.workers.ingest.retained_store import RetainedStore
from calibrant_server.workers.ingest.unsealed import ids_in
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.windows import ALL_ROWS

# More rows than these are not read: panes speak for such a cohort. As many take ten seconds and half a gigabyte.
MAX_ROWS = 200_000
_A_READ = 20_000


@dataclass(frozen=True)
class CohortRows:
    """The rows of a cohort that count, in the order of their ids.

    Attributes
    ----------
    facts : id and record of each
    are_all : whether there are no others
    """

    facts: list[tuple[str, Facts]]
    are_all: bool

    @property
    def raters(self) -> dict[str, int]:
        """Named raters with the number of rows that each has rated, by name."""
        found: dict[str, int] = {}
        for _, each in self.facts:
            for rater, rating in each.ratings.items():
                if rating.klass != WITHDRAWN:
                    found[rater] = found.get(rater, 0) + 1
        return dict(sorted(found.items()))


def read_rows(node: Any, keys: PartitionKeys, config: ModelConfig, seen: Seen) -> CohortRows:
    """The retained records of a cohort's panes."""
    names = ids_in(node, keys, config, seen.starts) if seen.n <= MAX_ROWS else []
    records, found = RetainedStore(node, keys), []
    for first in range(0, len(names), _A_READ):
        read = records.facts(config, names[first : first + _A_READ])
        found += [(name, facts) for name, facts in read.items() if facts.counts]
    return CohortRows(sorted(found, key=lambda each: each[0]), bool(names) and len(names) >= seen.n)


def batch_of(rows: CohortRows, task: str, as_sent: bool = False) -> Batch | None:
    """All rows as one batch, units named alike whatever they came as; None without a row.

    Every row counts once and is of no case; `as_sent` with its weight, and with its case where all rows have one.
    """
    predictions = [each.prediction for _, each in rows.facts if each.prediction is not None]
    if not predictions:
        return None
    shared = any(each.group is not None for each in predictions)
    mixed = len({each.is_logits for each in predictions}) > 1
    in_cases = as_sent and all(each.case is not None for each in predictions)
    alike = [
        (
            name,
            replace(
                facts,
                prediction=_kept(_alike(name, facts.prediction, shared, mixed), as_sent, in_cases),
            ),
        )
        for name, facts in rows.facts
        if facts.prediction is not None
    ]
    [batch] = batches_of(alike, task)
    return batch


def _alike(name: str, prediction: Prediction, shared: bool, mixed: bool) -> Prediction:
    """A row as those beside it: by its unit where some share one, as probabilities where not all are logits."""
    scores = prediction.scores
    if mixed and prediction.is_logits:
        power = np.exp(scores - scores.max())
        scores = power / power.sum()
    unit = (prediction.group or f"i{name}") if shared else None
    is_logits = prediction.is_logits and not mixed
    return replace(prediction, scores=scores, is_logits=is_logits, unit=unit)


def _kept(prediction: Prediction, weight: bool, case: bool) -> Prediction:
    """A row with no more than what is kept of it."""
    return replace(
        prediction,
        weight=prediction.weight if weight else None,
        case=prediction.case if case else None,
    )


def row_cohorts(
    rows: CohortRows, batch: Batch, settings: AlarmSettings, in_force: InForce, start_s: int
) -> dict[str, DetectorCohort]:
    """The cohort of every detector but the raters' own."""
    if settings.is_mapped and in_force.is_lost:
        return {}
    fitted, raters = in_force.fitted if settings.is_mapped else None, settings.raters
    if settings.rater is not None:
        batch, raters = rated_by(rows, batch, settings.rater), "mean"
    found: dict[str, DetectorCohort] = {}
    for slice_, index in _slices(rows).items():
        part = batch if slice_ == ALL_ROWS else batch.take(index)
        for scope in settings.scopes:
            table, coverage = row_table(part, scope, raters, fitted)
            found[detector_name(scope, slice_)] = DetectorCohort(start_s, table, coverage)
    return found


def rater_cohorts(
    rows: CohortRows,
    batch: Batch,
    names: Iterable[str],
    settings: AlarmSettings,
    in_force: InForce,
    start_s: int,
) -> dict[str, DetectorCohort]:
    """The cohort of each named rater's own detector: all rows, labelled by that rater alone."""
    if settings.is_mapped and in_force.is_lost:
        return {}
    fitted = in_force.fitted if settings.is_mapped else None
    found: dict[str, DetectorCohort] = {}
    for rater in names:
        table, coverage = row_table(
            rated_by(rows, batch, rater), settings.scopes[0], "mean", fitted
        )
        found[detector_name(f"{RATER}{rater}", ALL_ROWS)] = DetectorCohort(start_s, table, coverage)
    return found


def rated_by(rows: CohortRows, batch: Batch, rater: str) -> Batch:
    """The batch of the rows with no label but one rater's."""
    entries = [
        (place, facts.ratings[rater].klass)
        for place, (_, facts) in enumerate(rows.facts)
        if rater in facts.ratings and facts.ratings[rater].klass != WITHDRAWN
    ]
    row, klass = np.array(entries, np.int64).reshape(-1, 2).T
    return replace(batch, votes=Votes(row.copy(), klass.copy(), np.ones(len(entries), np.int64)))


def agreement_of(batch: Batch) -> dict[str, Any]:
    """Krippendorff's alpha of a cohort, and on how many predictions it rests."""
    several = batch.row_total >= 2
    return {"alpha": krippendorff_alpha(batch.label_counts[several]), "n": int(several.sum())}


def _slices(rows: CohortRows) -> Mapping[str, np.ndarray]:
    places: dict[str, list[int]] = {}
    for place, (_, facts) in enumerate(rows.facts):
        assert facts.prediction is not None
        for key, value in facts.prediction.slices:
            places.setdefault(f"{key}:{value}", []).append(place)
    whole = {ALL_ROWS: np.arange(len(rows.facts))}
    return whole | {name: np.array(found, np.int64) for name, found in sorted(places.items())}
