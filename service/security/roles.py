"""Roles of people who sign in at a proxy, and the scopes of each role."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from calibrant_server.service.security.keys import PERSON_PREFIX, SCOPES, Caller, Scope
from calibrant_server.service.settings import Settings

MAX_NAME, MAX_ROLES = 200, 100
ID_DIGITS = 16


class RoleSettingsError(ValueError):
    """The settings of people and their roles cannot be used."""


class Role(BaseModel):
    """What a role may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scopes: tuple[Scope, ...] = Field(min_length=1)


_ROLES = TypeAdapter(dict[str, Role])


@dataclass(frozen=True)
class Roles:
    """Scopes by role, and the tenant of all people."""

    by_name: Mapping[str, Role]
    tenant: str

    def caller(self, name: str, names: Iterable[str], identity: str) -> Caller | None:
        """Return the caller of a person with the listed ones of their roles; None if the name cannot be recorded.

        Parameters
        ----------
        name : of the person, for people
        names : of their roles
        identity : what distinguishes the person from others
        """
        name = name.strip()
        if not name or len(name) > MAX_NAME or not name.isprintable():
            return None
        listed = (each.strip() for each in islice(names, MAX_ROLES))
        known = list(dict.fromkeys(each for each in listed if each in self.by_name))
        scopes = {scope for each in known for scope in self.by_name[each].scopes}
        digest = hashlib.sha256(identity.encode()).hexdigest()[:ID_DIGITS]
        allowed = frozenset(each for each in SCOPES if each in scopes)
        return Caller(self.tenant, allowed, name, f"{PERSON_PREFIX}{digest}", role=", ".join(known))


def roles_of(settings: Settings) -> Roles:
    """Return the roles of the settings.

    Raises
    ------
    RoleSettingsError
        They cannot be read.
    """
    try:
        found = _ROLES.validate_python(json.loads(settings.roles or "{}"))
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(map(str, first["loc"]))
        raise RoleSettingsError(f"CALIBRANT_ROLES: {place}: {first['msg']}") from None
    except ValueError as error:
        raise RoleSettingsError(
            'CALIBRANT_ROLES is not JSON; expected {"ROLE": {"scopes": ["read"]}}.'
        ) from error
    return Roles(found, settings.people_tenant)
