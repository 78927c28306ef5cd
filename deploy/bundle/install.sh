#!/bin/sh
# Installs Calibrant from this folder, without any network: `sh install.sh [FOLDER]` makes a virtual environment, by default ./calibrant-env.
# PYTHON=/path/to/python3 chooses the Python; the README names the version that the wheels are for.
set -eu
cd "$(dirname "$0")"
folder=${1:-calibrant-env}
python=${PYTHON:-python3}
"$python" - <<'CHECK'
import hashlib, pathlib, sys

listed = {}
for line in pathlib.Path("SHA256SUMS").read_text("utf-8").splitlines():
    digest, name = line.split("  ", 1)
    listed[name] = digest
wrong = [
    name
    for name, digest in listed.items()
    if not pathlib.Path(name).is_file() or hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest() != digest
]
wrong += [
    str(path) for path in pathlib.Path("wheels").iterdir() if path.as_posix() not in listed
]
if wrong:
    sys.exit(f"Not installed: these files are missing, changed or not in SHA256SUMS: {', '.join(wrong[:5])}. Copy the bundle again.")
print(f"{len(listed)} files have their digests")
CHECK
"$python" -c 'import ensurepip, venv' 2>/dev/null || {
    echo "$python has no venv module; on Debian and Ubuntu, install python3-venv" >&2
    exit 1
}
"$python" -m venv --clear "$folder"
"$folder/bin/python" -m pip --isolated install --quiet --disable-pip-version-check --no-index --find-links wheels \
    --no-deps --require-hashes -r requirements.txt
"$folder/bin/calibrant" --version
echo "installed in $folder; check it: $folder/bin/calibrant validate"
