"""A PDF document of texts, lines and figures: pages of operators, and the fonts with the characters that are used.

It is written directly, by ISO 32000-1: headings, tables and lines need few operators, and no library is loaded for them.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, field
from datetime import datetime

from calibrant.quality_report.pdf_font import Font, dejavu

MM = 72.0 / 25.4
WIDTH, HEIGHT = 210.0 * MM, 297.0 * MM
PRODUCER = "Calibrant"
# Characters in one block of a table of characters, at most.
MAX_BLOCK = 100


@dataclass
class FontUse:
    """A font of a document, with the characters that it writes."""

    font: Font
    used: dict[int, str] = field(default_factory=dict)

    def encoded(self, text: str) -> str:
        """Return the glyphs of a text as an operand."""
        found = []
        for character in text:
            glyph = self.font.glyph(character)
            self.used.setdefault(glyph, character)
            found.append(f"{glyph:04x}")
        return f"<{''.join(found)}>"


@dataclass
class PdfDocument:
    """Pages that are written from top to bottom. Places are in points from the upper left corner.

    Attributes
    ----------
    title : of the document
    margin : around the text
    y : where the page continues
    """

    title: str
    margin: float
    y: float = 0.0
    pages: list[list[str]] = field(default_factory=list)
    fonts: list[FontUse] = field(default_factory=lambda: [FontUse(dejavu(False)), FontUse(dejavu(True))])  # fmt: skip
    opacities: list[float] = field(default_factory=list)

    @property
    def inner_width(self) -> float:
        """Width between the margins."""
        return WIDTH - 2.0 * self.margin

    def add_page(self) -> None:
        """Begin a page."""
        self.pages.append([])
        self.y = self.margin

    def fits(self, height: float) -> bool:
        """Return whether the page has so much room."""
        return self.y + height <= HEIGHT - self.margin

    def make_room(self, height: float) -> bool:
        """Begin a page unless this one has so much room; return whether a new one began."""
        if self.fits(height):
            return False
        self.add_page()
        return True

    def write(self, x: float, y: float, text: str, size: float, is_bold: bool = False) -> None:
        """Write a text on a base line."""
        shown = self.shown(text, size, is_bold, f"1 0 0 1 {_n(x)} {_n(HEIGHT - y)}")
        self.pages[-1].append(shown)

    def shown(self, text: str, size: float, is_bold: bool, matrix: str) -> str:
        """Return the operators that write a text where a matrix places it."""
        use = self.fonts[is_bold]
        return f"BT /F{int(is_bold)} {_n(size)} Tf {matrix} Tm {use.encoded(text)} Tj ET"

    def width(self, text: str, size: float, is_bold: bool = False) -> float:
        """Return the width of a text."""
        return self.fonts[is_bold].font.width(text, size)

    def line(self, y: float, width: float = 0.5) -> None:
        """Draw a line between the margins."""
        ends = f"{_n(self.margin)} {_n(HEIGHT - y)} m {_n(WIDTH - self.margin)} {_n(HEIGHT - y)} l"
        self.pages[-1].append(f"{_n(width)} w {ends} S")

    def state_of(self, opacity: float) -> str:
        """Return the name of the graphics state with an opacity."""
        if opacity not in self.opacities:
            self.opacities.append(opacity)
        return f"G{self.opacities.index(opacity)}"

    def output(self, written_at: datetime) -> bytes:
        """Return the file."""
        objects = _Objects()
        catalogue, pages, info = (objects.reserve() for _ in range(3))
        fonts = [_font(objects, each) if each.used else 0 for each in self.fonts]
        states = "".join(
            f"/G{place} <</CA {_n(each)} /ca {_n(each)}>>"
            for place, each in enumerate(self.opacities)
        )
        named = "".join(f"/F{place} {each} 0 R" for place, each in enumerate(fonts) if each)
        resources = objects.add(f"<</Font <<{named}>> /ExtGState <<{states}>>>>".encode())
        kids = []
        for page in self.pages:
            content = objects.stream("\n".join(page).encode("ascii"))
            kids.append(
                objects.add(
                    f"<</Type /Page /Parent {pages} 0 R /MediaBox [0 0 {_n(WIDTH)} {_n(HEIGHT)}] /Resources {resources} 0 R "
                    f"/Contents {content} 0 R>>".encode()
                )
            )
        listed = " ".join(f"{each} 0 R" for each in kids)
        objects.put(pages, f"<</Type /Pages /Count {len(kids)} /Kids [{listed}]>>".encode())
        shows_title = "/ViewerPreferences <</DisplayDocTitle true>>"
        objects.put(catalogue, f"<</Type /Catalog /Pages {pages} 0 R /Lang (en) {shows_title}>>".encode())  # fmt: skip
        date = written_at.strftime("D:%Y%m%d%H%M%SZ")
        about = f"<</Title {_hex_text(self.title)} /Producer ({PRODUCER}) /CreationDate ({date})>>"
        objects.put(info, about.encode())
        return objects.file(catalogue, info)


class _Objects:
    """Numbered objects of a file."""

    def __init__(self) -> None:
        self._found: list[bytes] = []

    def reserve(self) -> int:
        """Return the number of an object that is put later."""
        self._found.append(b"")
        return len(self._found)

    def put(self, number: int, data: bytes) -> None:
        """Give a reserved object its content."""
        self._found[number - 1] = data

    def add(self, data: bytes) -> int:
        """Add an object; return its number."""
        number = self.reserve()
        self.put(number, data)
        return number

    def stream(self, data: bytes, more: str = "") -> int:
        """Add a compressed stream; return its number."""
        packed = zlib.compress(data)
        head = f"<</Filter /FlateDecode /Length {len(packed)}{more}>>\nstream\n".encode()
        return self.add(head + packed + b"\nendstream")

    def file(self, catalogue: int, info: int) -> bytes:
        """Return all objects as a file, with the table of their places."""
        parts, at, places = [b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"], 15, []
        for number, data in enumerate(self._found, 1):
            places.append(at)
            parts.append(b"%d 0 obj\n%b\nendobj\n" % (number, data))
            at += len(parts[-1])
        digest = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
        n = len(places) + 1
        lines = "".join(f"{each:010} 00000 n \n" for each in places)
        trailer = f"<</Size {n} /Root {catalogue} 0 R /Info {info} 0 R /ID [<{digest}><{digest}>]>>"
        end = (
            f"xref\n0 {n}\n0000000000 65535 f \n{lines}trailer\n{trailer}\nstartxref\n{at}\n%%EOF\n"
        )
        return b"".join([*parts, end.encode()])


def _font(objects: _Objects, use: FontUse) -> int:
    """Add a font with the glyphs that are used; return its number."""
    font, glyphs = use.font, sorted(use.used)
    above, below = font.heights
    # The tag of a subset: six letters that depend on what is in it.
    digest = hashlib.md5(repr(glyphs).encode(), usedforsecurity=False).digest()
    name = "".join(chr(65 + each % 26) for each in digest[:6]) + f"+{font.name}"
    data = font.subset(glyphs)
    file = objects.stream(data, f" /Length1 {len(data)}")
    box = " ".join(map(str, font.box))
    descriptor = objects.add(
        f"<</Type /FontDescriptor /FontName /{name} /Flags 4 /FontBBox [{box}] /ItalicAngle 0 /Ascent {above} /Descent {below} "
        f"/CapHeight {above} /StemV 80 /FontFile2 {file} 0 R>>".encode()
    )
    widths = " ".join(f"{glyph} [{_n(font.advance(glyph))}]" for glyph in glyphs)
    inner = objects.add(
        f"<</Type /Font /Subtype /CIDFontType2 /BaseFont /{name} /CIDSystemInfo <</Registry (Adobe) /Ordering (Identity) "
        f"/Supplement 0>> /FontDescriptor {descriptor} 0 R /CIDToGIDMap /Identity /DW 0 /W [{widths}]>>".encode()
    )
    characters = objects.stream(_characters(use.used))
    return objects.add(
        f"<</Type /Font /Subtype /Type0 /BaseFont /{name} /Encoding /Identity-H /DescendantFonts [{inner} 0 R] "
        f"/ToUnicode {characters} 0 R>>".encode()
    )


def _characters(used: dict[int, str]) -> bytes:
    """Return the characters of glyphs, by which readers search and copy text."""
    lines = [
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Characters def /CMapType 2 def",
        "1 begincodespacerange <0000> <ffff> endcodespacerange",
    ]
    named = [f"<{glyph:04x}> {_units(text)}" for glyph, text in sorted(used.items())]
    for at in range(0, len(named), MAX_BLOCK):
        block = named[at : at + MAX_BLOCK]
        lines += [f"{len(block)} beginbfchar", *block, "endbfchar"]
    return "\n".join([*lines, "endcmap end end"]).encode()


def _units(text: str) -> str:
    return f"<{text.encode('utf-16-be', 'surrogatepass').hex()}>"


def _hex_text(text: str) -> str:
    return f"<feff{text.encode('utf-16-be', 'surrogatepass').hex()}>"


def _n(value: float) -> str:
    """Return a number with a hundredth of a point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
