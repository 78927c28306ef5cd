"""Checks of the installation: versions, complete and unchanged files, the kernel, the machine."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from calibrant.cli.doctor import ERROR, disk, memory
from calibrant.cli.site_validation.results import Result, judged, noted
from calibrant.kernel import status

# What every result depends on.
PACKAGES = ("calibrant", "numpy", "scipy", "zstandard")
_A_READ = 1 << 20


def installation_results(folder: Path) -> Iterator[Result]:
    """Check what is installed; `folder` is where the state is, or will be."""
    python = platform.python_version()
    yield judged(
        "installation", "version of Python", "3.11 to 3.14", python,
        (3, 11) <= tuple(map(int, python.split(".")[:2])) <= (3, 14),
    )  # fmt: skip
    for name in PACKAGES:
        yield _unchanged(name)
    kernel = status()
    found = (
        f"compiled ({kernel.variant})"
        if kernel.filled_by == "kernel"
        else f"numpy: {kernel.reason}. Results are the same, slower"
    )
    yield noted("installation", "what fills panes", found)
    for each in (disk(folder), memory()):
        yield judged("installation", each.name, "enough to run", each.found, each.state != ERROR)


def _unchanged(name: str) -> Result:
    """Compare the files of a package with the digests that its wheel states."""
    check = f"files of {name}"
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return judged("installation", check, "installed", "not installed", False)
    if is_editable(found):
        return noted(
            "installation", check, f"{found.version}, run from a clone: no digests to compare with"
        )
    expected = "as in the wheel, by SHA-256"
    changed, n = [], 0
    for file in found.files or ():
        if file.hash is None or file.suffix == ".pyc":
            continue
        n += 1
        path = Path(str(file.locate()))
        if not path.is_file() or digest(path, file.hash.mode) != file.hash.value:
            changed.append(str(file))
    if changed:
        named = ", ".join(changed[:3])
        measured = (
            f"{found.version}: {len(changed)} of {n} files are missing or changed, such as {named}"
        )
    else:
        measured = f"{found.version}: {n} files unchanged"
    return judged("installation", check, expected, measured, bool(n) and not changed)


def is_editable(found: Distribution) -> bool:
    """Return whether a package is run from its source folder."""
    return '"editable": true' in (found.read_text("direct_url.json") or "")


def digest(path: Path, method: str = "sha256") -> str:
    """Return the digest of a file as a wheel's RECORD writes it."""
    hashed = hashlib.new(method)
    with path.open("rb") as file:
        while part := file.read(_A_READ):
            hashed.update(part)
    return base64.urlsafe_b64encode(hashed.digest()).rstrip(b"=").decode()


def versions() -> dict[str, str]:
    """Return the versions of what the results depend on."""
    return {name: distribution(name).version for name in PACKAGES} | {
        "python": platform.python_version()
    }


def record_digest(name: str = "calibrant") -> str | None:
    """Return the SHA-256 of a package's list of files with their digests; None if it is run from a clone."""
    found = distribution(name)
    text = None if is_editable(found) else found.read_text("RECORD")
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
