"""The alarm in the engine: detectors that sealed cohorts advance, episodes, and the word to those who asked for it."""
