"""What a service loads when it starts: the first report needs nothing more."""

from __future__ import annotations

import subprocess
import sys

FIRST = """
import sys
from calibrant_server.service.pages.rendering import load_templates
load_templates()
before = set(sys.modules)
from calibrant.quality_report.pdf import pdf
from calibrant.quality_report.pdf_document import register_fonts
page = "<h1>a</h1><p>b</p><table><tr><td>c</td></tr></table>"
assert pdf(page, "Title").startswith(b"%PDF")
print(sorted(set(sys.modules) - before), register_fonts.cache_info().misses)
"""


def test_the_first_pdf_of_a_started_service_imports_nothing_and_reads_no_font() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, check=True, timeout=300
    )
    assert run.stdout.strip() == "[] 1"
