"""Version of the computing code: cached results and ETags include it, so that other code never serves or confirms them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy
import scipy

import calibrant

ROOTS = (Path(calibrant.__file__).parent, Path(__file__).parents[1])


def digest_of_code(roots: Iterable[Path] = ROOTS) -> str:
    """Return the digest of every source file below some folders, and of the versions of numpy and scipy."""
    digest = blake2b(f"{numpy.__version__} {scipy.__version__}".encode(), digest_size=8)
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            name, text = path.relative_to(root).as_posix(), path.read_bytes()
            digest.update(f"\n{root.name}/{name} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()


CODE_VERSION = digest_of_code()
