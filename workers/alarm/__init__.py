"""The alarm in the engine: sealed cohorts advance detectors, detectors open episodes, and receivers are notified."""
