"""Declared settings of a model's alarm, and the representation of alarms in responses."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from calibrant.core.durations import duration_of, parse_duration
from calibrant.core.errors import CalibrationInputError
from calibrant.core.label_policies import POLICIES
from calibrant.core.query import PaneQuery
from calibrant.drift.calibration import TOLERANCE
from calibrant.drift.cohort_tables import OWN_SCORE
from calibrant.drift.unit_tables import DRIFT_BINS
from calibrant.inference.false_alarm_rate import DEFAULT_FALSE_ALARMS, FalseAlarms
from calibrant.input.names import name_of
from calibrant_server.service.reads.queries import Duration
from calibrant_server.workers.alarm.alarm_settings import (
    DEFAULT_BUCKET,
    DEFAULT_RATERS,
    ONE_RATER,
    AlarmSettings,
)
from calibrant_server.workers.alarm.deliveries import (
    EMAIL,
    MAIL_SCHEME,
    PAGERDUTY,
    SECRET_PREFIX,
    STANDARD,
    Format,
    is_address,
    is_routing_key,
    key_of,
    new_secret,
)
from calibrant_server.workers.alarm.url_guard import (
    BlockedUrlError,
    Network,
    check_declared,
    check_url,
)
from calibrant_server.workers.store.model_config import ModelConfig

# Each format's stored secret, as it is shown and accepted again.
HIDDEN_SECRETS = {STANDARD: f"{SECRET_PREFIX}…", PAGERDUTY: "…"}
NEEDS_KEY = "Received {received}; expected the integration key of PagerDuty, 32 letters and digits."
NO_KEY = "Received an integration key of PagerDuty for the format {format}; expected it for pagerduty alone."
SCORES = ("top_label", "positive")
MAX_WEBHOOKS, MAX_THRESHOLDS = 10, 10
MAX_CLASSES = 64
MAX_RATERS = 64


def check_false_alarms(text: str) -> str:
    """Return a false-alarm rate unchanged; reject it if it cannot be parsed."""
    try:
        FalseAlarms.parse(text)
    except ValueError as error:
        raise PydanticCustomError("false_alarms", "{reason}", {"reason": str(error)}) from error
    return text


def check_receiver(url: str) -> str:
    """Return a receiver's URL unchanged; reject an invalid one. A name is resolved and checked at each delivery."""
    if is_address(url):
        return url
    try:
        check_url(url)
    except BlockedUrlError as error:
        raise PydanticCustomError("url", "{reason}", {"reason": str(error)}) from error
    return url


def check_secret(text: str) -> str:
    """Return a secret unchanged; reject an invalid one. The hidden form means the stored secret."""
    if text not in HIDDEN_SECRETS.values() and not is_routing_key(text):
        try:
            key_of(text)
        except ValueError as error:
            raise PydanticCustomError("secret", "{reason}", {"reason": str(error)}) from error
    return text


def check_policy(text: str) -> str:
    """Return a label policy unchanged; reject an unknown one."""
    if text in POLICIES or (
        text.startswith(ONE_RATER) and name_of(text.removeprefix(ONE_RATER)) is not None
    ):
        return text
    allowed = f"{', '.join(POLICIES)}, or {ONE_RATER}NAME"
    raise PydanticCustomError(
        "unknown_value",
        "Received {received}; expected one of {allowed}",
        {"received": repr(text[:60]), "allowed": allowed},
    )


def check_bets(value: Any) -> Any:
    """Return the bets unchanged; reject all but the score or a list of classes."""
    listed = isinstance(value, list) and all(type(each) in (str, int) for each in value)
    if listed or value in (OWN_SCORE, *SCORES):
        return value
    raise PydanticCustomError("bets", "expected score, top_label, positive, or a list of classes")


class WebhookBody(BaseModel):
    """Receiver of alarms (Standard Webhooks)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, AfterValidator(check_receiver)] = Field(
        description="https, or `mailto:` with one address. A name is resolved, and its addresses are checked, at each delivery."
    )
    format: Format = Field(
        STANDARD,
        description="Form of the messages: Standard Webhooks, Slack, Teams, PagerDuty (Events API v2), or e-mail.",
    )
    secret: Annotated[str, AfterValidator(check_secret)] | None = Field(
        None,
        description="Signs standard messages: `whsec_` and base64 of 24 to 64 bytes. Default: a new secret, returned once. Of PagerDuty: "
        "the integration key. Other forms have none.",
    )

    @model_validator(mode="after")
    def _agree(self) -> "WebhookBody":
        if (self.format == EMAIL) != self.url.startswith(MAIL_SCHEME):
            raise PydanticCustomError(
                "format",
                "Received format email without an e-mail address, or the reverse; expected both, such as the url mailto:you@example.org.",
            )
        has_key = self.secret is not None and is_routing_key(self.secret)
        if not self.is_hidden and has_key != (self.format == PAGERDUTY):
            received = "no secret" if self.secret is None else "another secret"
            detail = NO_KEY if has_key else NEEDS_KEY
            raise PydanticCustomError(
                "secret", detail, {"received": received, "format": self.format}
            )
        if self.secret is not None and self.format not in (STANDARD, PAGERDUTY):
            raise PydanticCustomError(
                "secret",
                "Received a secret; expected none: messages of this format are not signed.",
            )
        return self

    @property
    def is_hidden(self) -> bool:
        """Whether the secret is the form in which a stored one is shown."""
        return self.secret in HIDDEN_SECRETS.values()


class AlarmBody(BaseModel):
    """Settings of the drift alarm."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tolerance: float = Field(
        TOLERANCE,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="Calibration error that is allowed.",
    )
    false_alarms: Annotated[str, AfterValidator(check_false_alarms)] = Field(
        DEFAULT_FALSE_ALARMS,
        description="Maximum number of false alarms over all slices together, on average.",
    )
    bucket: Duration = Field(
        DEFAULT_BUCKET, description="Length of a cohort, a multiple of the model's panes."
    )
    bets: Annotated[str | list[str | int], BeforeValidator(check_bets)] = Field(
        "score",
        description="`score`: for a binary model class 1 (same as `positive`), for other models the top label (same as `top_label`). "
        "Instead, a list of classes.",
    )
    scores: Literal["mapped", "raw"] = Field(
        "mapped",
        description="`mapped`: bets use scores after the current calibration map. `raw`: scores as sent.",
    )
    raters: Annotated[str, AfterValidator(check_policy)] = Field(
        "mean", description="Label policy: pooled, mean, majority, single, or rater:NAME."
    )
    rater_detectors: int = Field(
        DEFAULT_RATERS,
        ge=0,
        le=MAX_RATERS,
        description="Maximum number of named raters with a separate detector.",
    )
    false_flags: float = Field(
        0.05, gt=0, lt=1, description="Maximum expected share of false flags among flagged slices."
    )
    thresholds: list[Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]] = Field(
        [],
        max_length=MAX_THRESHOLDS,
        description="Decision thresholds: scores from which on somebody acts. Reports state what became of the predictions above each.",
    )
    webhooks: list[WebhookBody] = Field([], max_length=MAX_WEBHOOKS)


def stored_alarm(
    body: AlarmBody,
    config: ModelConfig,
    current: ModelConfig | None,
    networks: Sequence[Network] | None = None,
) -> dict[str, Any]:
    """Return the settings as the registry stores them: declared values, classes by index, every secret.

    Parameters
    ----------
    current : the model before the change, None for a new one
    networks : where new receivers may be, in addition to the public internet; None to leave the check to the delivery

    Raises
    ------
    CalibrationInputError
        The settings contradict the model.
    """
    stored = body.model_dump(mode="json", exclude_unset=True)
    bucket_s = parse_duration(body.bucket)
    if bucket_s % config.pane_s:
        detail = f"Received {body.bucket}; expected a multiple of the model's panes of {duration_of(config.pane_s)}."
        raise _broken("bucket", "whole_panes", detail)
    try:
        FalseAlarms.parse(body.false_alarms).run_length(float(bucket_s))
    except ValueError as error:
        raise _broken("false_alarms", "run_length", str(error)) from error
    if isinstance(body.bets, list):
        stored["bets"] = _classes(body.bets, config)
    elif body.bets not in (OWN_SCORE, named := config.spec().default_scope):
        raise _broken(
            "bets",
            "other_score",
            f"Received {body.bets}; expected {named} for a {config.task} model, or a list of classes.",
        )
    elif "bets" in stored:
        stored["bets"] = OWN_SCORE
    if "webhooks" in stored:
        stored["webhooks"] = _webhooks(body.webhooks, current, networks)
    return stored


def _classes(named: list[str | int], config: ModelConfig) -> list[int]:
    if not 1 <= len(named) <= MAX_CLASSES:
        raise _broken(
            "bets", "classes", f"Received {len(named)} classes; expected 1 to {MAX_CLASSES}."
        )
    found = [_index(each, config) for each in named]
    if len(set(found)) < len(found):
        raise _broken(
            "bets", "repeated", "Received a class more than once; expected each class once."
        )
    for index in found:
        try:
            PaneQuery(bins=DRIFT_BINS, scope=f"class:{index}").check(config.spec())
        except CalibrationInputError as error:
            raise _broken("bets", "class_not_kept", error.violations[0].detail) from error
    return found


def _index(name: str | int, config: ModelConfig) -> int:
    if isinstance(name, str) and name in (config.classes or ()):
        return (config.classes or []).index(name)
    if isinstance(name, int) and 0 <= name < config.n_classes:
        return name
    known = ", ".join(config.classes or ()) or f"0 to {config.n_classes - 1}"
    raise _broken("bets", "unknown_class", f"Received class {name!r}; expected one of {known}.")


def _webhooks(
    wanted: list[WebhookBody], current: ModelConfig | None, networks: Sequence[Network] | None
) -> list[dict[str, str]]:
    known = {} if current is None else {w.url: w.secret for w in AlarmSettings.of(current).webhooks}
    if len({each.url for each in wanted}) < len(wanted):
        raise _broken(
            "webhooks", "repeated", "Received a receiver more than once; expected it once."
        )
    stored = []
    for number, each in enumerate(wanted):
        if each.format not in (STANDARD, PAGERDUTY):
            if networks is not None and each.format != EMAIL:
                _check_place(number, each.url, networks)
            stored.append({"url": each.url, "format": each.format})
            continue
        if networks is not None and each.url not in known:
            _check_place(number, each.url, networks)
        given = each.secret
        if each.is_hidden and each.url not in known:
            raise _broken(
                f"webhooks/{number}/secret",
                "secret",
                "Received a hidden secret, but none is stored for this URL. Send the secret, or leave it out for a new one.",
            )
        if given is None or each.is_hidden:
            given = known.get(each.url) or new_secret()
        form = {} if each.format == STANDARD else {"format": each.format}
        stored.append({"url": each.url, "secret": given, **form})
    return stored


def _check_place(number: int, url: str, networks: Sequence[Network]) -> None:
    try:
        check_declared(url, networks)
    except BlockedUrlError as error:
        detail = f"{error}, a setting of service and workers."
        raise _broken(f"webhooks/{number}/url", "blocked_receiver", detail) from error


def hidden(
    alarm: dict[str, Any], disclosed: frozenset[str] = frozenset(), with_full_urls: bool = True
) -> dict[str, Any]:
    """Return settings with hidden secrets, except those of the URLs in `disclosed`.

    Unless `with_full_urls`, URLs are reduced to scheme and host: the path of many receivers is their key.
    """
    if not alarm.get("webhooks"):
        return alarm
    shown = [
        each
        if each["url"] in disclosed or "secret" not in each
        else {**each, "secret": HIDDEN_SECRETS[each.get("format", STANDARD)]}
        for each in alarm["webhooks"]
    ]
    if not with_full_urls:
        shown = [{**each, "url": _host_of(each["url"])} for each in shown]
    return {**alarm, "webhooks": shown}


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def newly_made(body: AlarmBody, current: ModelConfig | None) -> frozenset[str]:
    """Return the URLs for which a secret is created now; it is returned once."""
    known = set() if current is None else {w.url for w in AlarmSettings.of(current).webhooks}
    made = (w.url for w in body.webhooks if w.secret is None and w.format == STANDARD)
    return frozenset(made) - known


def _broken(member: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError.at(f"/alarm/{member}", rule, detail)
