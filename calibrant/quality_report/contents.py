"""Contents of a report: results in the form in which the service returns them, with what they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrant.figures.base import scope_of
from calibrant.metrics import slug_of

# What is left out if a report does not list all subgroups.
SUBGROUPS = "subgroups"
# A service reads the error of each class up to so many: one takes about as long as a subgroup.
MAX_CLASSES = 10


@dataclass(frozen=True)
class LeftOut:
    """Data that were received and are not in the results.

    Attributes
    ----------
    what : such as "predictions without a label"
    n : how many
    why : a sentence
    """

    what: str
    n: int
    why: str


@dataclass(frozen=True)
class Subgroup:
    """Results of one declared subgroup.

    Attributes
    ----------
    name : such as "site:A"
    metrics : as in `ReportContents`
    """

    name: str
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class ReportContents:
    """What a report shows.

    Attributes
    ----------
    title : of the page
    classes : names of the classes in their order; empty where they have none
    metrics : counts, `raters`, `scope`, `bins`, `ci` and `metrics` by slug, as `Report.to_dict` and `GET metrics` return them
    subject : what was evaluated: name and text
    generated_at : RFC 3339 time, None if not known
    reliability, temperature : as `ReliabilityTable.to_dict` and `Temperature.to_dict` return them
    series : ECE and accuracy of consecutive parts, as `GET metrics?every=` returns them
    decision_curve : as `DecisionCurve.to_dict` returns it, where decisions are made at a threshold
    class_reliability : reliability tables by class, each against the rest
    class_errors : ECE of a class against the rest by its score, such as "probability of tumour", where the verdict is of the top class
    tolerance : largest acceptable calibration error, set beforehand; None if there was none
    detectable : smallest errors that would have been found, by period ("now", "in_30_days", "in_90_days")
    ratings_per_prediction : number of ratings, as text, to number of predictions
    n_cases : number of cases in the results, None if cases are not named
    n_cases_received : number of cases with those that were left out, None if it is not known
    unit, row : what a unit and a prediction are, such as "patient" and "voxel"
    left_out : what is not in the results
    partly_left_out : sentences on parts of the data that only some results have
    subgroups : results of each declared subgroup
    comparison : `metrics` of `GET metrics?against=`, with the name of the other side as `name`
    cases : results of each case, worst first, as `-o numbers.json` has them
    readers : per reader: `name`, `n_ratings`, `agreement` (share of pairs with a rating of another reader that are equal), `metrics`, and
        `kappa` and `dice` with each other reader by name
    odd_reader : the one who differs from the others, as `raters.odd_rater` returns it; None without evidence
    readers_missing : why readers are not compared, although predictions have ratings of several
    rater_disagreement : share of pairs of ratings of one prediction that differ
    compat : values of other libraries, as `calibrant.compat` returns them
    extra_tables : further results: caption, header and rows of texts
    drift : as `GET drift` returns it
    since_change : net benefits as `metrics` has them, since the `start` of an open change; None without one
    are_words_the_verdict : whether its words are the verdict: the report is of the present, with the model's tolerance
    active_map : as `GET maps/current` returns it
    map_effect : as `GET maps/current/effect` returns it, with labels since the promotion
    versions : name and text: versions of the software, digests of files and state
    image_digests : by case, the SHA-256 of each image file by its column
    """

    title: str
    metrics: Mapping[str, Any]
    subject: Sequence[tuple[str, str]] = ()
    classes: Sequence[str] = ()
    generated_at: str | None = None
    reliability: Mapping[str, Any] | None = None
    temperature: Mapping[str, Any] | None = None
    series: Mapping[str, Any] | None = None
    decision_curve: Mapping[str, Any] | None = None
    class_reliability: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    class_errors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tolerance: float | None = None
    detectable: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ratings_per_prediction: Mapping[str, int] = field(default_factory=dict)
    n_cases: int | None = None
    n_cases_received: int | None = None
    unit: str = "unit"
    row: str = "prediction"
    left_out: Sequence[LeftOut] = ()
    partly_left_out: Sequence[str] = ()
    subgroups: Sequence[Subgroup] = ()
    comparison: Mapping[str, Any] | None = None
    cases: Sequence[Mapping[str, Any]] = ()
    readers: Sequence[Mapping[str, Any]] = ()
    odd_reader: Mapping[str, Any] | None = None
    readers_missing: str | None = None
    rater_disagreement: float | None = None
    compat: Mapping[str, Any] | None = None
    extra_tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = ()
    drift: Mapping[str, Any] | None = None
    since_change: Mapping[str, Any] | None = None
    are_words_the_verdict: bool = False
    active_map: Mapping[str, Any] | None = None
    map_effect: Mapping[str, Any] | None = None
    versions: Sequence[tuple[str, str]] = ()
    image_digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def ci(self) -> float:
        """Nominal coverage of the intervals."""
        return float(self.metrics.get("ci") or 0.95)

    @property
    def estimates(self) -> Mapping[str, Mapping[str, Any]]:
        """Results by slug."""
        found: Mapping[str, Mapping[str, Any]] = self.metrics.get("metrics") or {}
        return found

    @property
    def thresholds(self) -> list[Mapping[str, Any]]:
        """Net benefit at each decision threshold, where it has a value; since an open change if there is one."""
        found = self.metrics if self.since_change is None else self.since_change
        return [
            each
            for key, each in (found.get("metrics") or {}).items()
            if slug_of(key) == "net_benefit" and each.get("value") is not None
        ]

    @property
    def reader_errors(self) -> dict[str, float | None]:
        """ECE of the model against each reader by name."""
        return {str(each["name"]): each["metrics"]["ece"]["value"] for each in self.readers}

    @property
    def score(self) -> str | None:
        """What the score of the results is, such as "probability of malignant"; None where it is not known."""
        values = {**self.metrics, "classes": list(self.classes)}
        return scope_of(values) if values.get("scope") else None

    def score_of(self, estimate: Mapping[str, Any]) -> str:
        """Return what the score of one result is, which may differ from that of the others: one acts on a class."""
        return scope_of({**estimate, "classes": list(self.classes)})

    def count(self, name: str) -> int | None:
        """Return a number of the data, such as `n_units`; None if it is not known."""
        value = self.metrics.get(name)
        return None if value is None else int(value)
