"""Answers, one file each, named as the kind of question.

A file has `answer(pane, config, params, seed) -> dict` of JSON values. It may have `parts(params)`, the names of the
accumulators that it reads (None: all), and `BY_PANE = True` to get a list of `calibrant_server.workers.store.windows.Dated` instead of their
merge, or `PAIRED = True` to get the merge together with that of what the question is asked against. Panes are shared with
other questions and must not be changed. A `CalibrationInputError` becomes the answer.
"""
