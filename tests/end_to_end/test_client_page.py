"""The examples of the client's page run one after the other and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)


def test_examples_print_as_shown(embedded, tmp_path):
    salt = tmp_path / "salt"
    salt.write_text("0123456789abcdef" * 4)
    assert sum(bool(shown) for _, shown in EXAMPLES) >= 8
    space: dict[str, Any] = {}
    for code, shown in EXAMPLES:
        here = code.replace("127.0.0.1:8000", f"127.0.0.1:{embedded.port}")
        here = here.replace('model("triage")', 'model("client-page")')
        here = here.replace("/etc/calibrant/salt", str(salt))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(here, "docs/client.md", "exec"), space)
        assert printed.getvalue() == shown, code
