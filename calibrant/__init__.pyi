# Written by `make names`; do not edit.
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

from calibrant.client import AsyncClient as AsyncClient
from calibrant.client import Client as Client
from calibrant.core.batch import Batch as Batch
from calibrant.core.errors import CalibrationInputError as CalibrationInputError
from calibrant.core.errors import Violation as Violation
from calibrant.core.histogram import Histogram as Histogram
from calibrant.core.pane import Pane as Pane
from calibrant.core.panes_by_key import Key as Key
from calibrant.core.panes_by_key import PanesByKey as PanesByKey
from calibrant.core.panes_by_key import SplitUnitsWarning as SplitUnitsWarning
from calibrant.core.panes_by_key import fill_by as fill_by
from calibrant.core.spec import PaneSpec as PaneSpec
from calibrant.input.annotations import Annotations as Annotations
from calibrant.library import evaluate as evaluate
from calibrant.library import fit_map as fit_map
from calibrant.library import fit_temperature as fit_temperature
from calibrant.library import reliability as reliability
from calibrant.library_comparison import compare as compare
from calibrant.library_comparison import compat as compat
from calibrant.library_curves import decision_curve as decision_curve
from calibrant.metrics import METRICS as METRICS
from calibrant.metrics.estimate import Estimate as Estimate
from calibrant.results import CalibrationMap as CalibrationMap
from calibrant.results import Comparison as Comparison
from calibrant.results import DecisionCurve as DecisionCurve
from calibrant.results import Difference as Difference
from calibrant.results import MultilabelReport as MultilabelReport
from calibrant.results import ReliabilityTable as ReliabilityTable
from calibrant.results import Report as Report
from calibrant.results import SlicedReport as SlicedReport
from calibrant.results import Temperature as Temperature

__version__: str

class Options(TypedDict, total=False):
    raters: str
    ci: float
    logits: Any
    label_counts: Any
    label_shares: Any
    n_ratings: Any
    weights: Any
    units: Any
    ids: Any
    cases: Any
    classes: Any
    ignore_label: Any
    normalize: Any
    bins: int | Sequence[float]
    binning: str
    edges: str
    min_count: float
    scope: str | None
    ties: str
    loss_weight: str
    concentration: float
    temperature: float
    bandwidth: float
    norm: int
    score: str
    background: str
    missing: str
    regions: str
    composites: Mapping[str, Sequence[int]] | None
    instances: str
    single_vote: str
    data: str
    leave: str
    selection: str
    order: float
    average: str
    membership: str
    threshold: float
    floor: float
    statistic: str
    n_raters: int
    kernel_width: float
    epsilon: float
    bandwidth_from: str
    kernel_sd: float

class MetricFunction(Protocol):
    def __call__(
        self, probabilities: Any = None, labels: Any = None, **options: Unpack[Options]
    ) -> Estimate: ...

accuracy: MetricFunction
ace: MetricFunction
adaptive_ece: MetricFunction
all_label_ece: MetricFunction
auc: MetricFunction
aurc: MetricFunction
brier: MetricFunction
calibrated_disagreement_ce: MetricFunction
calibration_intercept: MetricFunction
calibration_loss: MetricFunction
calibration_slope: MetricFunction
canonical_ce: MetricFunction
classwise_ece: MetricFunction
corp_discrimination: MetricFunction
corp_miscalibration: MetricFunction
corp_uncertainty: MetricFunction
debiased_ece: MetricFunction
dice: MetricFunction
disagreement_ce: MetricFunction
disagreement_loss: MetricFunction
dist_ce: MetricFunction
ece: MetricFunction
ece_sweep: MetricFunction
ent_ce: MetricFunction
epistemic_loss: MetricFunction
grouping_loss: MetricFunction
hosmer_lemeshow: MetricFunction
ici: MetricFunction
irreducible_loss: MetricFunction
kde_ece: MetricFunction
ks: MetricFunction
kuiper: MetricFunction
l2_ece_squared: MetricFunction
lp_ece: MetricFunction
macro_ce: MetricFunction
mce: MetricFunction
ml1_ace: MetricFunction
ml1_ece: MetricFunction
ml1_mce: MetricFunction
net_benefit: MetricFunction
nixon_ace: MetricFunction
nll: MetricFunction
oe_ratio: MetricFunction
overconfidence_error: MetricFunction
rank_cs: MetricFunction
rater_statistic: MetricFunction
refinement_loss: MetricFunction
rmsce: MetricFunction
skce: MetricFunction
smooth_ece: MetricFunction
spiegelhalter_z: MetricFunction
squared_loss: MetricFunction
tace: MetricFunction
uce: MetricFunction
zhang_kde_ece: MetricFunction
