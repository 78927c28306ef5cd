"""Examples of responses, by operationId: recorded once from a running service and shortened."""

from typing import Any

RESPONSE_EXAMPLES: dict[str, tuple[str, Any]] = {}
