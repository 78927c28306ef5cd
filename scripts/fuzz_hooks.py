"""Lines of JSON for schemathesis, which has no serialiser for them, and a bound of queries.

It loads this module by `SCHEMATHESIS_HOOKS`.
"""

import json
from typing import Any
from urllib.parse import urlencode

import schemathesis

# A head of more than 64 KiB is rejected (431) before any operation is known; no operation documents that.
MAX_QUERY_BYTES = 32 * 1024


@schemathesis.serializer("application/x-ndjson")  # type: ignore[untyped-decorator]
def lines(context: Any, value: Any) -> bytes:
    """Return one line per record; a generated value is one record or a list of them."""
    if isinstance(value, bytes | str):
        return value if isinstance(value, bytes) else value.encode()
    records = value if isinstance(value, list) else [value]
    return b"\n".join(json.dumps(record).encode("utf-8", "surrogatepass") for record in records)


@schemathesis.hook  # type: ignore[untyped-decorator]
def filter_query(context: Any, query: Any) -> bool:
    """Return whether a generated query fits in the head of a request."""
    return len(urlencode(query or {}, doseq=True, errors="surrogatepass")) <= MAX_QUERY_BYTES
