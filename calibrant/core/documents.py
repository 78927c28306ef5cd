"""Names of the plain dicts that results consist of, with the field names of the API.

The service returns a result of the library as it is, so its dicts hold numbers, texts, lists and None only. Values that
functions pass to each other otherwise are dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A result, or a section of it.
Result = dict[str, Any]
# One entry of a list in a result: a bin, a case, a class, a cohort.
Row = dict[str, Any]
# Fields that accompany a value in a result: how it was computed, or why it is missing.
Extra = dict[str, Any]
# Parameters of a fitted calibration map, by name.
Parameters = dict[str, Any]
# A fitted calibration map: method, scope, class and parameters.
FittedMap = Mapping[str, Any]
# Columns of a batch or a table, by name.
Columns = dict[str, Any]
# Description of packed arrays, stored with them: names, format numbers, shapes.
Header = dict[str, Any]
