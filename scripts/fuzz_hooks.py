"""Lines of JSON for schemathesis, which has no serialiser for them. It loads this module by `SCHEMATHESIS_HOOKS`."""

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")  # type: ignore[untyped-decorator]
def lines(context: Any, value: Any) -> bytes:
    """Return one line per record; a generated value is one record or a list of them."""
    if isinstance(value, bytes | str):
        return value if isinstance(value, bytes) else value.encode()
    records = value if isinstance(value, list) else [value]
    return b"\n".join(json.dumps(record).encode("utf-8", "surrogatepass") for record in records)
