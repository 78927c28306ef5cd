"""Write docs/images/model-page.png: the page of a model, with the data of the tutorial of a platform team.

Called by `make page-image`. It needs a Chromium: `CHROMIUM` is its program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from PIL import Image

from demo.server import Server

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorials" / "platform.md"
IMAGE = ROOT / "docs" / "images" / "model-page.png"
MODEL = "triage"
WIDTH, HEIGHT = 1100, 1330
COLOURS = 64
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
PATIENCE_S = 120


def scripts_of_the_tutorial() -> dict[str, str]:
    """Return the Python files of the tutorial by name."""
    found = re.findall(
        r'^```python title="([\w.]+)"\n(.*?)^```$', TUTORIAL.read_text(), re.M | re.S
    )
    return dict(found)


def play(url: str, folder: Path) -> None:
    """Send the tutorial's predictions and labels, and wait until the alarm has evaluated them."""
    scripts = scripts_of_the_tutorial()
    for name in ("simulate.py", "alarm.py"):
        code = scripts[name].replace("http://127.0.0.1:8000", url)
        subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, timeout=PATIENCE_S)
        httpx.patch(
            f"{url}/v1/models/{MODEL}", json={"label_horizon": "P7D"}, headers={"If-Match": "*"}
        ).raise_for_status()


def photograph(url: str, folder: Path) -> None:
    """Store the upper part of the model's page."""
    page = f"{url}/models/{MODEL}"
    # The first view computes its results; those of the second are there.
    for _ in range(2):
        httpx.get(page, timeout=PATIENCE_S).raise_for_status()
        time.sleep(2)
    program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    command += [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={IMAGE}", page]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    Image.open(IMAGE).convert("RGB").quantize(COLOURS).save(IMAGE, optimize=True)


def main() -> None:
    IMAGE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder) / "server.log")
        try:
            server.start()
            play(server.url, Path(folder))
            photograph(server.url, Path(folder))
        finally:
            server.stop()
    print(f"wrote {IMAGE.relative_to(ROOT)}, {IMAGE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
