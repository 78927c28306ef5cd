"""What of the store belongs to a model, and what becomes of it when the model moves to another partition.

Each kind of key in `store/keys.py` has a rule here. A test compares the lists: a new kind of key needs a decision.
"""

from __future__ import annotations

# Keys of one generation, `T:KIND:tenant/model|generation...`: copied as they are.
COPIED = frozenset({
    "b", "s", "t", "y", "yl", "cd", "v", "l", "r", "u", "j", "n", "a", "h", "hr", "wl", "k", "f", "mv", "ra", "ev",
})  # fmt: skip
# Caches of the same form: computed again where they are missing.
CACHES = frozenset({"g"})
# Hashes and sets that the models of a partition share: the model's fields come with the entry that makes it live.
SHARED = frozenset({"m", "at", "cb", "ag", "e", "as", "w", "mc", "us"})
# Counters of a partition: the model's part is added in the new one. What expires by itself stays in the former one until then.
COUNTED = frozenset({"nr", "dn", "dt", "en"})
# Of the partition: its stream, cursor, lease, caches, moves, files that no day names, and what it fills for models of other
# partitions: models that have side partitions are not moved.
OF_PARTITION = frozenset(
    {"q", "in", "c", "o", "cf", "gt", "gb", "st", "mk", "sm", "sg", "ob", "oi", "od"}
)
# Entries that were not merged. A model that has some is not moved: their names contain the partition.
LETTERS = frozenset({"x", "pk"})


def kind_of(tag: str, name: str) -> str:
    """Return the kind of a partition's key.

    Examples
    --------
    >>> kind_of("{ns.p001}", "{ns.p001}:b:default/m|g1|batch")
    'b'
    """
    return name.removeprefix(f"{tag}:").partition(":")[0]


def is_of_generation(tag: str, name: str, of: str) -> bool:
    """Return whether a key belongs to a generation, `tenant/model|generation`.

    Examples
    --------
    >>> is_of_generation("{ns.p001}", "{ns.p001}:k:default/m|g1", "default/m|g1")
    True
    >>> is_of_generation("{ns.p001}", "{ns.p001}:k:default/m|g12", "default/m|g1")
    False
    """
    rest = name.removeprefix(f"{tag}:").partition(":")[2]
    return rest == of or rest.startswith(f"{of}|")
