"""`python -m scripts.bundle FOLDER`: the offline bundle. Wheels of Calibrant and of the lock `requirements/bundle.txt`, with digests.

The wheels are for the Python and the platform that run this. The packages come from the registry that pip is set up with; those of other
digests than the lock's are rejected. Called by `make bundle`, after the documentation site is built.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

from scripts.sbom import ROOT, document

LOCK = ROOT / "requirements" / "bundle.txt"
SITE = ROOT / "build" / "docs-site"
TEMPLATES = ROOT / "deploy" / "bundle"
SUMS = "SHA256SUMS"


def make(folder: Path, site: Path) -> Path:
    """Write the bundle as a folder in `folder`, and as an archive next to it; return the archive."""
    bill = document(LOCK)
    version = bill["metadata"]["component"]["version"]
    name = f"calibrant-{version}-{_platform()}"
    bundle = folder / name
    if bundle.exists():
        shutil.rmtree(bundle)
    wheels = bundle / "wheels"
    wheels.mkdir(parents=True)
    _own_wheel(wheels)
    _locked_wheels(wheels)
    (bundle / "requirements.txt").write_text(_requirements(wheels), "utf-8")
    (bundle / "sbom.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", "utf-8")
    shutil.copytree(site, bundle / "documentation")
    shutil.copy(TEMPLATES / "install.sh", bundle)
    readme = (TEMPLATES / "README.md").read_text("utf-8")
    for word, text in {
        "VERSION": version,
        "PYTHON": ".".join(platform.python_version_tuple()[:2]),
        "PLATFORM": sysconfig.get_platform(),
        "N_WHEELS": str(len(list(wheels.iterdir())) - 1),
    }.items():
        readme = readme.replace(f"@{word}@", text)
    (bundle / "README.md").write_text(readme, "utf-8")
    (bundle / SUMS).write_text("".join(_sums(bundle)), "utf-8")
    archive = folder / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(bundle, name)
    return archive


def _platform() -> str:
    machine = sysconfig.get_platform().replace(".", "_").replace("-", "_")
    return f"py{sys.version_info.major}{sys.version_info.minor}-{machine}"


def _own_wheel(wheels: Path) -> None:
    command = ["sh", str(ROOT / "scripts" / "wheels"), sys.executable, str(wheels.absolute())]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _locked_wheels(wheels: Path) -> None:
    """Download the wheel of each locked package that this Python needs; a package without a wheel is an error."""
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--require-hashes", "--only-binary", ":all:"),
        *("--dest", str(wheels), "-r", str(LOCK)),
    ]
    subprocess.run(command, check=True)


def _requirements(wheels: Path) -> str:
    """Return each wheel's package with version and digest, as pip requires them."""
    lines = []
    for wheel in sorted(wheels.iterdir()):
        name, version = wheel.name.split("-")[:2]
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{_digest(wheel)}\n")
    return "".join(lines)


def _sums(bundle: Path) -> Iterator[str]:
    for path in sorted(bundle.rglob("*")):
        if path.is_file():
            yield f"{_digest(path)}  {path.relative_to(bundle).as_posix()}\n"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Make the bundle and print its archive with the digest that protects it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--site", type=Path, default=SITE, help="folder of the documentation site")
    given = parser.parse_args()
    archive = make(given.folder, given.site)
    sums = archive.with_name(archive.name.removesuffix(".tar.gz")) / SUMS
    print(f"wrote {archive} ({archive.stat().st_size / 1e6:.0f} MB)")
    print(f"SHA-256 of {SUMS}: {_digest(sums)}")


if __name__ == "__main__":
    main()
