"""HTTP client of the service: results as the library's own objects, predictions sent in the background.

It needs the extra `client` (httpx). It is imported when a client is made, so that the names exist without
it, and so that `import calibrant` stays light.
"""

from calibrant.client.asynchronous import AsyncClient, AsyncModel
from calibrant.client.current_map import CurrentMap
from calibrant.client.errors import ClientError, ServiceError, ServiceUnreachable
from calibrant.client.outbox import LogStatistics
from calibrant.client.pseudonyms import Pseudonyms
from calibrant.client.results import Alarm, Maps, MapVersion, Receipt
from calibrant.client.synchronous import Client, Model

__all__ = [
    "Alarm",
    "AsyncClient",
    "AsyncModel",
    "Client",
    "ClientError",
    "CurrentMap",
    "LogStatistics",
    "MapVersion",
    "Maps",
    "Model",
    "Pseudonyms",
    "Receipt",
    "ServiceError",
    "ServiceUnreachable",
]
