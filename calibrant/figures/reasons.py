"""Codes of reasons in words: why a result, or its interval, is not there. For sentences, tables and pages."""

from __future__ import annotations

_NOT_COMPUTED = "not computed for this result"
REASONS = {
    "no_data": "no labelled data",
    "no_labels": "no labelled data",
    "no_cases": "no cases are named",
    "no_interval": "one of the two has none",
    "too_few_units": "too few independent units",
    "few_units": "too few independent units",
    "units_not_replicated": "too few independent units",
    "too_few_cases": "too few cases",
    "equal_cases": "all cases have the same value",
    "too_few_samples": "too few samples",
    "few_errors": "too few independent errors or correct predictions",
    "one_outcome": "all outcomes are of one kind",
    "one_vote": "needs two ratings of a prediction",
    "label_shares": "soft labels without a number of ratings",
    "mean_of_labels": "a mean over labels has none",
    "cases_pooled": "all cases form one result",
    "units_of_several_cases": "some unit has several cases, such as two scans of a patient",
    "tied_rows": "few distinct scores, and rows have no ids",
    "narrow_scores": "almost all scores are equal, or nearly",
    "constant_scores": "all scores are equal",
    "bins_too_coarse": "bins too coarse for scores this near 0 or 1",
    "sparse_bins": "too few samples in some bins",
    "zero_probability": "a label has a class to which the model gave probability 0",
    "separable": "every rating is of the most probable class, so every lower temperature fits better",
    "flat": "every prediction is certain or uniform, so no temperature changes the fit",
    "too_many_classes": "too many classes",
    "needs_rows": "needs the rows; sums are stored",
    "not_in_histogram": "plain histograms do not carry it",
    "histograms_not_replicated": "histograms carry no interval",
    "test_statistic": "a test statistic has a p-value instead",
    "not_replicated": _NOT_COMPUTED,
    "classes_not_replicated": _NOT_COMPUTED,
    "scope_not_replicated": _NOT_COMPUTED,
    "estimator_not_replicated": _NOT_COMPUTED,
    "uncertainty_not_replicated": _NOT_COMPUTED,
    "equal_mass_not_replicated": _NOT_COMPUTED,
}


def reason_words(code: object, otherwise: str = "not available") -> str:
    """Return a reason in words, without a capital and without a full stop.

    Examples
    --------
    >>> reason_words("few_errors"), reason_words("not_kept"), reason_words(None)
    ('too few independent errors or correct predictions', 'not kept', 'not available')
    """
    return REASONS.get(str(code), str(code).replace("_", " ")) if code else otherwise
