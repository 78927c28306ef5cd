"""Result kinds: one file each, which declares `KIND` and is named as the kind.

A file declares the query, what it reads of a window, how it is computed and, where two windows or models can be compared,
how. Panes are shared with other queries and must not be changed. A `CalibrationInputError` becomes the response.
"""
