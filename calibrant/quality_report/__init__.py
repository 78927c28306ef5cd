"""Report for a quality committee: one HTML page that needs nothing from elsewhere and prints.

`calibrant score -o`, `Report.to_html` and `GET /v1/models/{model}/report` write it with `page`. It needs the extra `report`
(Jinja2, matplotlib), which `cli` and `server` include.
"""

from calibrant.quality_report.contents import (
    SUBGROUPS,
    LeftOut,
    ReportContents,
    Subgroup,
)
from calibrant.quality_report.page import page

__all__ = ["SUBGROUPS", "LeftOut", "ReportContents", "Subgroup", "page"]
