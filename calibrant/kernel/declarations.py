"""What the C sources declare: structures, blocks and functions of the library. Each layout is described once, in C."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

_SOURCE = Path(__file__).with_name("source")
_HEADERS = ("kernel.h", "tempered.h")
_NUMBERS: dict[str, Any] = {
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double,
}
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRUCTURE = re.compile(r"typedef struct \{(.*?)\} (\w+);", re.DOTALL)
_FUNCTION = re.compile(r"^EXPORTED ([\w *]+?)(\w+)\((.*?)\)$", re.MULTILINE)
_BLOCK = re.compile(r"BLOCK\(\w+, (\w+), (\w+), (\d+), (\d+)\)")
_ENUMERATION = re.compile(r"enum \w* ?\{([^}]*)\}")


class KernelBlock(NamedTuple):
    """A block that the kernel fills, with the number of columns that it writes."""

    accumulator: str
    name: str
    n_counts: int
    n_sums: int


@lru_cache(maxsize=1)
def structures() -> dict[str, Any]:
    """Return the structures of the headers by name."""
    text = _text(_HEADERS)
    known: dict[str, Any] = dict(_NUMBERS)
    sizes = {
        name.strip(): i
        for names in _ENUMERATION.findall(text)
        for i, name in enumerate(names.split(","))
    }
    for body, name in _STRUCTURE.findall(text):
        fields = [
            field for line in body.split(";") for field in _fields(line.split(), known, sizes)
        ]
        known[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return {name: each for name, each in known.items() if name not in _NUMBERS}


def blocks() -> list[KernelBlock]:
    """Return the blocks that the kernel fills, in its order."""
    return [
        KernelBlock(accumulator, name, int(n_counts), int(n_sums))
        for accumulator, name, n_counts, n_sums in _BLOCK.findall(_text(_HEADERS[:1]))
    ]


def declare(library: ctypes.CDLL) -> None:
    """Declare the types of the arguments and results of all functions: addresses and whole numbers."""
    sources = sorted(path.name for path in _SOURCE.iterdir())
    for result, name, arguments in _FUNCTION.findall(_text(sources)):
        function = getattr(library, name)
        function.argtypes = [
            ctypes.c_void_p if "*" in each else ctypes.c_int64
            for each in arguments.replace("void", "").split(",")
            if each
        ]
        function.restype = {"void": None, "int64_t": ctypes.c_int64}.get(
            result.strip(), ctypes.c_void_p
        )


def _text(files: Sequence[str]) -> str:
    return _COMMENT.sub("", "\n".join((_SOURCE / name).read_text() for name in files))


def _fields(
    words: list[str], known: dict[str, Any], sizes: dict[str, int]
) -> list[tuple[str, Any]]:
    """Return name and type of the fields that one line declares, as `const double *rates, *score`."""
    is_constant = words[:1] == ["const"]
    if not words:
        return []
    of, *rest = words[is_constant:]
    return [
        (re.findall(r"\w+", each)[0], _type(of, each, is_constant, known, sizes))
        for each in " ".join(rest).split(",")
    ]


def _type(
    of: str, declared: str, is_constant: bool, known: dict[str, Any], sizes: dict[str, int]
) -> Any:
    if "*" in declared:
        return ctypes.c_char_p if is_constant and of == "char" else ctypes.c_void_p
    length = re.search(r"\[(\w+)\]", declared)
    if length is None:
        return known[of]
    size = length[1]
    return known[of] * (int(size) if size.isdigit() else sizes[size])
