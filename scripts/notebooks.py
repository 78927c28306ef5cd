"""`python -m scripts.notebooks [--check] [FILE...]`: execute the notebooks of docs/notebooks and store what they print.

With `--check`, nothing is written: each output is compared with the stored one. Numbers may differ in the last of the printed digits. Called by
`make notebooks`; the tests check them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

# Its functions have no types.
notebooks: Any = nbformat
FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
TIMEOUT_S = 600
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
TOLERANCE = 0.02


def read(path: Path) -> Any:
    """Return a notebook."""
    return notebooks.reads(path.read_text("utf-8"), as_version=4)


def executed(path: Path) -> Any:
    """Return a notebook with the outputs of a new kernel; a cell that fails raises its error."""
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    # In an empty folder: what the kernel writes does not enter the documentation.
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=TIMEOUT_S, kernel_name="python3", record_timing=False,
            resources={"metadata": {"path": folder}},
        )  # fmt: skip
        return client.execute()


def texts(notebook: Any) -> list[list[str]]:
    """Return the outputs of each code cell as text; of images only that there is one."""
    return [
        [_text(output) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return "(image)" if "image/png" in output.data else str(output.data["text/plain"])


def differences(stored: list[list[str]], found: list[list[str]]) -> list[str]:
    """Return the cells whose output is another one than stored: other words, or other numbers than rounding explains."""
    return [
        f"cell {place}: stored {before!r}, found {after!r}"
        for place, (before, after) in enumerate(zip(stored, found, strict=True), 1)
        if not _agree("\n".join(before), "\n".join(after))
    ]


def _agree(before: str, after: str) -> bool:
    words = [re.sub(r"\s+", " ", NUMBER.sub("#", each)) for each in (before, after)]
    numbers = [[float(each) for each in NUMBER.findall(text)] for text in (before, after)]
    return words[0] == words[1] and all(
        abs(one - two) <= TOLERANCE * max(abs(one), abs(two), 0.01)
        for one, two in zip(*numbers, strict=True)
    )


def main() -> int:
    """Execute notebooks; return 1 if an output differs from the stored one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    different = False
    for path in given.files:
        found = executed(path)
        if given.check:
            for each in differences(texts(read(path)), texts(found)):
                different = True
                print(f"{path.name}: {each}", file=sys.stderr)
        else:
            found.metadata.pop("widgets", None)
            path.write_text(notebooks.writes(found) + "\n", "utf-8")
            print(f"wrote {path}")
    return int(different)


if __name__ == "__main__":
    raise SystemExit(main())
