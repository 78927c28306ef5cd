"""Record the responses of scenarios again: `python -m tests.recorded [SCENARIO…]`."""

from __future__ import annotations

import argparse
import json
import sys

from tests.recorded.exchanges import FOLDER, store
from tests.recorded.results import RESULTS, library_results
from tests.recorded.scenarios import scenarios
from tests.recorded.service import record


def main() -> int:
    """Record all scenarios, or those whose names begin with an argument."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="names or their beginnings; default: all")
    wanted = tuple(parser.parse_args().scenario) or ("",)
    known = scenarios()
    found = [name for name in (*known, RESULTS) if name.startswith(wanted)]
    FOLDER.mkdir(exist_ok=True)
    for name in found:
        # As it is read: NaN, tuples and names of classes have the form that JSON gives them.
        exchanges = library_results() if name == RESULTS else record(known[name])
        store(name, json.loads(json.dumps(exchanges)))
        print(f"{name}: {len(exchanges)}")
    if not found:
        print(f"no scenario begins with {' or '.join(wanted)}", file=sys.stderr)
    return not found


if __name__ == "__main__":
    sys.exit(main())
