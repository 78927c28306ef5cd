"""The structures of `source/kernel.h`, field by field, and the blocks that the kernel fills."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from calibrant.accumulators import accumulators
from calibrant.core.spec import PaneSpec

_Int, _Double, _Pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class KernelBlock(NamedTuple):
    """A block that the kernel fills, with the number of columns that it writes."""

    accumulator: str
    name: str
    n_counts: int
    n_sums: int


# In the order of `enum block`.
BLOCKS = (
    KernelBlock("all_labels", "cells", 2, 13),
    KernelBlock("classes", "cells", 2, 13),
    KernelBlock("concentration", "profile", 2, 6),
    KernelBlock("counts", "counts", 7, 1),
    KernelBlock("disagreement", "cells", 1, 18),
    KernelBlock("disagreement", "replicates", 1, 3),
    KernelBlock("label_bins", "bins", 2, 10),
    KernelBlock("label_distribution", "sums", 3, 9),
    KernelBlock("label_distribution", "entropy_gap", 1, 1),
    KernelBlock("label_distribution", "distance", 1, 1),
    KernelBlock("label_uncertainty", "sums", 2, 10),
    KernelBlock("positive", "cells", 2, 13),
    KernelBlock("replicates", "tables", 1, 8),
    KernelBlock("replicates", "scores", 1, 5),
    KernelBlock("replicates", "classes", 1, 8),
    KernelBlock("replicates", "score_nulls", 1, 2),
    KernelBlock("replicates", "unit_products", 2, 2),
    KernelBlock("replicates", "class_unit_products", 2, 2),
    KernelBlock("scores", "scores", 3, 9),
    KernelBlock("temperature", "curve", 2, 8),
    KernelBlock("temperature", "tables", 1, 8),
    KernelBlock("temperature", "curvature", 1, 2),
    KernelBlock("temperature", "units", 4, 0),
    KernelBlock("top_label", "cells", 2, 13),
    KernelBlock("uncertainty", "cells", 1, 12),
    KernelBlock("units", "bins", 2, 11),
)


class KernelGrid(ctypes.Structure):
    _fields_ = [("cells", _Int), ("refinement", _Int), ("lower", _Pointer)]


class KernelModel(ctypes.Structure):
    _fields_ = [
        *((name, _Int) for name in ("n_classes", "is_binary", "n_listed")),
        *((name, _Pointer) for name in ("slot_of_class", "label_position", "class_bin")),
        *((f"{name}_grid", KernelGrid) for name in ("top", "class", "label", "disagreement", "uncertainty")),
        ("log_n_classes", _Double),
    ]  # fmt: skip


class Shape(ctypes.Structure):
    _fields_ = [("n_counts", _Int), ("n_sums", _Int), ("size", _Int)]


# The arrays of a batch, in the order of `KernelRows`, and whether each is of doubles (d), signed (i) or unsigned (u) integers.
POINTERS = {
    **{"scores": "d", "probabilities": "d"},
    **{"rating_row": "i", "rating_class": "i", "rating_count": "i", "weights": "d"},
    **{
        "prediction_hash": "u",
        "unit_hash": "u",
        "unit_key": "u",
        "case_hash": "u",
        "edge_rules": "i",
    },
}


class KernelRows(ctypes.Structure):
    _fields_ = [
        *((name, _Int) for name in ("n", "n_entries", "is_logits", "has_units")),
        *((name, _Int) for name in ("unit_from_row", "digest_source")),
        ("pointers", _Pointer * len(POINTERS)),
        ("hashes_rows", _Int),
        ("needs_digest", _Int),
        ("digest", ctypes.c_uint64 * 2),
    ]


class KernelSingleLabels(ctypes.Structure):
    _fields_ = [
        *((name, _Int) for name in ("n", "n_classes", "row_stride", "class_stride")),
        *((name, _Int) for name in ("is_double", "is_flat", "edge_rule", "n_bins")),
        *((name, _Pointer) for name in ("scores", "labels")),
        ("grid", KernelGrid),
        *((name, _Pointer) for name in ("bin_of", "top_cells", "positive_cells", "tables", "sums")),
    ]


class Destination(ctypes.Structure):
    _fields_ = [(name, _Pointer) for name in ("places", "counts", "sums")] + [("stride", _Int)]


class Gains(ctypes.Structure):
    _fields_ = [
        *((name, _Int) for name in ("n_rows", "n", "n_weights")),
        *((name, _Pointer) for name in ("weights", "rates", "score")),
    ]


class Narrowing(ctypes.Structure):
    _fields_ = [
        *((name, _Int) for name in ("n", "n_columns")),
        *((name, _Pointer) for name in ("scores", "is_logits")),
    ]


class JsonMember(ctypes.Structure):
    _fields_ = [
        *((name, _Int) for name in ("kind", "n", "width", "first", "first_end")),
        *((name, _Int) for name in ("name", "name_end", "value", "value_end")),
    ]


class JsonText(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_char_p),
        ("length", _Int),
        ("powers", _Pointer),
        ("values", _Pointer),
        ("max_values", _Int),
        ("ends", _Pointer),
        ("max_ends", _Int),
        ("members", _Pointer),
        *((name, _Int) for name in ("max_members", "n_members", "n_lists", "n_lines")),
        ("rest", _Pointer),
        ("n_rest", _Int),
    ]


class SmallBatch(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_char_p),
        *((name, _Int) for name in ("length", "n_classes", "capacity")),
        *(
            (name, _Pointer)
            for name in ("powers", "values", "ends", "ratings", "columns", "packed")
        ),
        *((name, _Int) for name in ("n", "n_ratings", "is_logits", "id", "id_end")),
    ]


def shapes_of(spec: PaneSpec) -> dict[KernelBlock, int]:
    """Return the blocks that the kernel fills in panes of a specification, with their sizes.

    An accumulator with a block or a number of columns that the kernel does not know is left to numpy.
    """
    found: dict[KernelBlock, int] = {}
    for name in dict.fromkeys(block.accumulator for block in BLOCKS):
        if not accumulators()[name].applies(spec):
            continue
        blocks = accumulators()[name](spec).blocks
        known = {block.name: block for block in BLOCKS if block.accumulator == name}
        if all(
            block in known and (each.n_counts, each.n_sums) == known[block][2:]
            for block, each in blocks.items()
        ):
            found |= {known[block]: each.size for block, each in blocks.items()}
    return found
