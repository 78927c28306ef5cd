"""`python -m scripts.sbom [FILE]`: a software bill of materials (CycloneDX 1.6) of what an image installs.

It is derived from the lock `requirements/run.txt`: every package with its version, its package URL and the digests of its
files. Licences come from the installed packages. The same lock gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "run.txt"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")
DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def locked(text: str) -> list[tuple[str, str, list[str]]]:
    """Return name, version and digests of each package in a lock."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if pinned := PINNED.match(line):
            found.append((pinned[1], pinned[2], []))
        if digest := DIGEST.search(line):
            found[-1][2].append(digest[1])
    return found


def component(name: str, version: str, digests: list[str]) -> dict[str, Any]:
    """Return one package as a component."""
    purl = f"pkg:pypi/{name}@{version}"
    files = [
        {
            "type": "distribution",
            "url": f"https://pypi.org/project/{name}/{version}/",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for digest in digests
    ]
    made = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": files,
    }
    licence = licence_of(name)
    return made if licence is None else {**made, "licenses": [{"license": {"name": licence}}]}


def licence_of(name: str) -> str | None:
    """Return the licence that an installed package names; None if it is not installed or names none."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return None
    names = [name for name in ("License-Expression", "License") if name in found]
    text = str(found[names[0]]) if names else ""
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first[:200] or None


def document(locked_in: Path = LOCK) -> dict[str, Any]:
    """Return the bill of materials of a lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = locked_in.read_text()
    purl = f"pkg:pypi/{project['name']}@{project['version']}"
    components = [component(*each) for each in locked(lock)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, purl + lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl,
                "name": project["name"],
                "version": project["version"],
                "purl": purl,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [each["bom-ref"] for each in components]}],
    }


def main() -> None:
    """Write the bill of materials to a file, or to standard output."""
    text = json.dumps(document(), indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
