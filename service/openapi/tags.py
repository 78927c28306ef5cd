"""Tags of the API document, in the order in which a user meets them."""

TAGS: dict[str, str] = {
    "models": "The registry: what is declared for each model; export and import.",
    "predictions": "Batches of predictions, with or without labels.",
    "labels": "Labels for predictions sent earlier or later, by id.",
    "histograms": "Histogram updates, packed panes and confidence histograms.",
    "batches": "The state of a batch: accepted, merged or rejected.",
    "catalogue": "The metrics and calibrators that exist, with their options.",
    "metrics": "Metrics over a window, for one or several models.",
    "reliability": "Tables and figures: reliability, ROC, uncertainty, label distribution.",
    "temperature": "The fitted temperature and the losses around it.",
    "maps": "Calibration maps: fitted on request, frozen versions, promotion.",
    "drift": "Whether calibration has changed, with the evidence.",
    "alarms": "Alarms, their acknowledgement, and webhooks.",
    "baselines": "Named windows that later windows are compared with.",
    "cases": "Segmentation: metrics per image or study.",
    "raters": "Disagreement of raters, metrics per rater, posterior class probabilities.",
    "stability": "How an estimate changes as data shrink.",
    "score": "Metrics of one posted batch; nothing is stored.",
    "keys": "Keys of callers, the audit log, limits and usage of your tenant.",
    "problems": "The meaning of each error.",
    "operations": "Health, version and Prometheus metrics of the service.",
}
