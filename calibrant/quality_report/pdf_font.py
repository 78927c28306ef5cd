"""A TrueType font inside a PDF: the widths of its characters, and a file with only the glyphs that are used.

Only what a PDF needs of such a file is read. A library for fonts takes a fifth of a second of CPU and 25 MB to load.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Tables that a PDF reader needs; the characters of glyphs are in the PDF itself.
KEPT = (b"cvt ", b"fpgm", b"glyf", b"head", b"hhea", b"hmtx", b"loca", b"maxp", b"prep")
EM = 1000.0
MISSING = 0
ARGUMENTS_ARE_WORDS, MORE, HAS_SCALE, HAS_TWO_SCALES, HAS_MATRIX = 0x1, 0x20, 0x8, 0x40, 0x80
CHECKSUM = 0xB1B0AFBA


class Font:
    """A TrueType font."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._tables = _tables(data)
        self.em = float(struct.unpack_from(">H", self._tables[b"head"], 18)[0])
        self._glyphs: dict[str, int] = {}

    @cached_property
    def box(self) -> list[float]:
        """Lower left and upper right corner of all glyphs, in thousandths of the size."""
        corners = struct.unpack_from(">4h", self._tables[b"head"], 36)
        return [round(each * EM / self.em) for each in corners]

    @cached_property
    def heights(self) -> tuple[int, int]:
        """What is above the base line, and what is below it, in thousandths of the size."""
        above, below = struct.unpack_from(">2h", self._tables[b"hhea"], 4)
        return round(above * EM / self.em), round(below * EM / self.em)

    @cached_property
    def _advances(self) -> NDArray[np.float64]:
        n = struct.unpack_from(">H", self._tables[b"hhea"], 34)[0]
        found = np.frombuffer(self._tables[b"hmtx"], ">u2", 2 * n)[::2] * (EM / self.em)
        n_alike = self._n_glyphs - n
        return np.concatenate([found, np.full(n_alike, found[-1])])

    @cached_property
    def _n_glyphs(self) -> int:
        return int(struct.unpack_from(">H", self._tables[b"maxp"], 4)[0])

    @cached_property
    def _ranges(self) -> NDArray[np.int64]:
        """First and last character of each range, and the glyph of its first."""
        table = self._tables[b"cmap"]
        (n,) = struct.unpack_from(">H", table, 2)
        for place in range(n):
            (at,) = struct.unpack_from(">I", table, 8 + 8 * place)
            if struct.unpack_from(">H", table, at)[0] == 12:
                (n_ranges,) = struct.unpack_from(">I", table, at + 12)
                found = np.frombuffer(table, ">u4", 3 * n_ranges, at + 16)
                return found.reshape(-1, 3).astype(np.int64)
        raise ValueError(f"the font {self.name} has no table of all characters")

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        is_long = struct.unpack_from(">h", self._tables[b"head"], 50)[0]
        if is_long:
            return np.frombuffer(self._tables[b"loca"], ">u4").astype(np.int64)
        return 2 * np.frombuffer(self._tables[b"loca"], ">u2").astype(np.int64)

    def glyph(self, character: str) -> int:
        """Return the number of a character's glyph, 0 where the font has none."""
        found = self._glyphs.get(character)
        if found is None:
            found = self._glyphs[character] = self._glyph(ord(character))
        return found

    def _glyph(self, code: int) -> int:
        at = int(np.searchsorted(self._ranges[:, 0], code, "right")) - 1
        first, last, glyph = (int(each) for each in self._ranges[max(at, 0)])
        return glyph + code - first if first <= code <= last else MISSING

    def advance(self, glyph: int) -> float:
        """Return the width of a glyph in thousandths of the size."""
        return float(self._advances[glyph])

    def width(self, text: str, size: float) -> float:
        """Return the width of a text."""
        return sum(self.advance(self.glyph(each)) for each in text) * size / EM

    def subset(self, glyphs: Iterable[int]) -> bytes:
        """Return a font file with these glyphs under their numbers, and no outlines or widths of others."""
        kept = self._with_parts({MISSING, *glyphs})
        places = np.zeros(self._n_glyphs + 1, ">u4")
        outlines, n_bytes = [], 0
        for glyph in range(self._n_glyphs):
            places[glyph] = n_bytes
            if glyph in kept:
                outline = self._outline(glyph)
                outlines.append(outline + bytes(-len(outline) % 4))
                n_bytes += len(outlines[-1])
        places[self._n_glyphs] = n_bytes
        head = bytearray(self._tables[b"head"])
        head[50:52] = struct.pack(">h", 1)
        changed = {
            b"glyf": b"".join(outlines),
            b"head": bytes(head),
            b"hmtx": self._widths_of(kept),
            b"loca": places.tobytes(),
        }
        return _file({name: changed.get(name, self._tables[name]) for name in KEPT if name in self._tables})  # fmt: skip

    def _widths_of(self, glyphs: set[int]) -> bytes:
        n = struct.unpack_from(">H", self._tables[b"hhea"], 34)[0]
        widths = np.frombuffer(self._tables[b"hmtx"], ">u2").copy()
        unused = np.setdiff1d(np.arange(n), [*glyphs])
        widths[2 * unused] = widths[2 * unused + 1] = 0
        return widths.tobytes()

    def _outline(self, glyph: int) -> bytes:
        return self._tables[b"glyf"][self._places[glyph] : self._places[glyph + 1]]

    def _with_parts(self, glyphs: set[int]) -> set[int]:
        """Return glyphs with those that they are composed of."""
        found: set[int] = set()
        waiting = [*glyphs]
        while waiting:
            glyph = waiting.pop()
            if glyph not in found:
                found.add(glyph)
                waiting += _components(self._outline(glyph))
        return found


@lru_cache(maxsize=2)
def dejavu(is_bold: bool) -> Font:
    """Return a font that matplotlib brings, without loading matplotlib: it has every character of a report.

    Raises
    ------
    ModuleNotFoundError
        matplotlib is not installed.
    """
    folder = _fonts()
    if folder is None:
        raise ModuleNotFoundError("matplotlib is not installed", name="matplotlib")
    name = "DejaVuSans-Bold" if is_bold else "DejaVuSans"
    return Font(name, (folder / f"{name}.ttf").read_bytes())


def _fonts() -> Path | None:
    found = find_spec("matplotlib")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"


def _tables(data: bytes) -> dict[bytes, bytes]:
    (n,) = struct.unpack_from(">H", data, 4)
    found = {}
    for place in range(n):
        name, _, at, length = struct.unpack_from(">4sIII", data, 12 + 16 * place)
        found[name] = data[at : at + length]
    return found


def _components(outline: bytes) -> list[int]:
    """Return the glyphs that a composite glyph consists of."""
    if not outline or struct.unpack_from(">h", outline)[0] >= 0:
        return []
    found, at, flags = [], 10, MORE
    while flags & MORE:
        flags, glyph = struct.unpack_from(">HH", outline, at)
        found.append(glyph)
        at += 8 if flags & ARGUMENTS_ARE_WORDS else 6
        at += 2 if flags & HAS_SCALE else 4 if flags & HAS_TWO_SCALES else 8 if flags & HAS_MATRIX else 0  # fmt: skip
    return found


def _file(tables: dict[bytes, bytes]) -> bytes:
    """Return tables as a font file, with its checksums."""
    n = len(tables)
    power = n.bit_length() - 1
    head = struct.pack(">IHHHH", 0x00010000, n, 16 << power, power, 16 * (n - (1 << power)))
    tables = tables | {b"head": tables[b"head"][:8] + bytes(4) + tables[b"head"][12:]}
    at, entries, parts = 12 + 16 * n, [], []
    for name, data in sorted(tables.items()):
        entries.append(struct.pack(">4sIII", name, _checksum(data), at, len(data)))
        parts.append(data + bytes(-len(data) % 4))
        at += len(parts[-1])
    whole = head + b"".join(entries) + b"".join(parts)
    place = whole.index(tables[b"head"])
    total = struct.pack(">I", (CHECKSUM - _checksum(whole)) % (1 << 32))
    return whole[: place + 8] + total + whole[place + 12 :]


def _checksum(data: bytes) -> int:
    words = np.frombuffer(data + bytes(-len(data) % 4), ">u4")
    return int(words.sum(dtype=np.uint64)) % (1 << 32)
