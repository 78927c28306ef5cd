"""Tokens of an OpenID Connect issuer as bearers: a person's identity, name and roles, signed by the issuer. Needs the extra `oidc` (joserfc).

The issuer's keys are read at the start, every five minutes, and when a token names an unknown one. Until they have been read, tokens are
answered with 503: an issuer that is away is no verdict on a token.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from logging import getLogger
from typing import Any
from urllib.parse import urlsplit

from cachetools import TTLCache

from calibrant.core.extras import pip_install
from calibrant_server.service.http.errors import IssuerUnavailable, KeyUnknown
from calibrant_server.service.security.keys import Caller, is_loopback
from calibrant_server.service.security.roles import Roles, RoleSettingsError, roles_of
from calibrant_server.service.settings import Settings

# Signatures that only the issuer can make; `none` and secrets shared with clients are not among them.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]  # fmt: skip
MAX_DOCUMENT = 1024 * 1024
LEEWAY_S, REFRESH_S, TIMEOUT_S = 60, 300.0, 5.0
# Least time between two reads that unknown keys cause: anyone can send a token with a made-up key.
MIN_REFRESH_S = 30.0
REMEMBERED, REMEMBERED_S = 1000, 60

log = getLogger("service.oidc")
Fetch = Callable[[str], Any]


class OidcSignIn:
    """Callers whom the tokens of an issuer name.

    Parameters
    ----------
    issuer : its address, as in `iss`
    audience : of tokens for this service, as in `aud`
    name_claim, roles_claim : claims with the name and the roles of the person
    fetch : returns the JSON at an address
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        name_claim: str,
        roles_claim: str,
        roles: Roles,
        fetch: Fetch | None = None,
    ) -> None:
        self.issuer, self.audience, self.roles = issuer, audience, roles
        self._name_claim, self._roles_claim = name_claim, roles_claim
        self._fetch = fetch or fetched
        self._keys: Any = None
        self._wanted = asyncio.Event()
        self._callers: TTLCache[str, tuple[Caller, float]] = TTLCache(REMEMBERED, REMEMBERED_S)

    def caller(self, token: str) -> Caller:
        """Return the person whom a token names.

        Raises
        ------
        KeyUnknown
            Its signature, issuer, audience or time is not valid, or it names no person.
        IssuerUnavailable
            The issuer's keys have not been read yet.
        """
        found = self._callers.get(token)
        if found is not None and time.time() < found[1]:
            return found[0]
        claims = self._claims(token)
        named = claims.get(self._name_claim) or claims["sub"]
        roles = claims.get(self._roles_claim) or []
        if isinstance(roles, str):
            roles = roles.replace(",", " ").split()
        texts = [each for each in roles if isinstance(each, str)] if isinstance(roles, list) else []
        caller = self.roles.caller(str(named), texts, f"{self.issuer} {claims['sub']}")
        if caller is None:
            raise KeyUnknown(
                "Received a token without the name of a person. Ask the issuer's operator."
            )
        self._callers[token] = caller, float(claims["exp"])
        return caller

    def _claims(self, token: str) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        if self._keys is None:
            self._wanted.set()
            raise IssuerUnavailable()
        registry = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.audience},
            sub={"essential": True},
            exp={"essential": True},
        )
        try:
            claims = jwt.decode(token, self._keys, algorithms=ALGORITHMS).claims
            registry.validate(claims)
        except InvalidKeyIdError as error:
            self._wanted.set()
            raise KeyUnknown("Received a token signed with a key that the issuer does not list. Sign in again.") from error  # fmt: skip
        except (JoseError, ValueError, TypeError) as error:
            reason = getattr(error, "error", "") or "it cannot be read"
            raise KeyUnknown(f"Received a token that is not valid: {reason}. Sign in again.") from error  # fmt: skip
        return dict(claims)

    async def read_keys(self) -> None:
        """Read the issuer's keys; keep the earlier ones if that fails."""
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            about = await asyncio.to_thread(
                self._fetch, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
            )
            if about.get("issuer") != self.issuer:
                raise ValueError(f"the document is of the issuer {str(about.get('issuer'))[:200]}")
            found = await asyncio.to_thread(self._fetch, about["jwks_uri"])
            keys = KeySet.import_key_set(found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, JoseError) as error:
            log.error("issuer_keys_not_read error=%s", error)
            return
        self._keys = keys
        self._callers.clear()

    async def forever(self) -> None:
        """Read the keys again and again."""
        while True:
            await self.read_keys()
            self._wanted.clear()
            await asyncio.sleep(MIN_REFRESH_S if self._keys is not None else 1.0)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), REFRESH_S - MIN_REFRESH_S)


@asynccontextmanager
async def issuer_keys(sign_in: OidcSignIn | None) -> AsyncIterator[None]:
    """Keep the issuer's keys up to date during the block."""
    if sign_in is None:
        yield
        return
    task = asyncio.create_task(sign_in.forever())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def oidc_sign_in(settings: Settings) -> OidcSignIn | None:
    """Return the sign-in by tokens of an issuer; None if none is set.

    Raises
    ------
    RoleSettingsError
        The issuer's address, the audience or roles are missing or cannot be used, or the extra is not installed.
    """
    if settings.oidc_issuer is None:
        return None
    if not settings.oidc_audience:
        raise RoleSettingsError(
            "CALIBRANT_OIDC_AUDIENCE is not set: tokens for other services would be accepted."
        )
    if not _is_safe(settings.oidc_issuer):
        raise RoleSettingsError(
            f"CALIBRANT_OIDC_ISSUER: received {settings.oidc_issuer[:200]!r}; expected an address with https."
        )
    try:
        import joserfc  # noqa: F401
    except ModuleNotFoundError as error:
        raise RoleSettingsError(
            f"CALIBRANT_OIDC_ISSUER needs the extra `oidc`: {pip_install('server,oidc')}"
        ) from error
    return OidcSignIn(
        settings.oidc_issuer,
        settings.oidc_audience,
        settings.oidc_name_claim,
        settings.oidc_roles_claim,
        roles_of(settings),
    )


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to an address that is not the issuer's."""

    def redirect_request(self, *args: Any, **given: Any) -> None:
        return None


def fetched(url: str) -> Any:
    """Return the JSON at an address of the issuer.

    Raises
    ------
    OSError, ValueError
        It cannot be reached, is not JSON, too large, or not on https.
    """
    if not _is_safe(url):
        raise ValueError(f"{url[:200]!r} is not on https")
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=TIMEOUT_S) as response:
        data = response.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise ValueError(f"{url} has more than {MAX_DOCUMENT} bytes")
    return json.loads(data)
