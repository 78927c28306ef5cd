"""The settings document of a model and its rules."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from calibrant.core.durations import parse_duration
from calibrant.core.spec import MAX_COMPOSITES
from calibrant.input.class_labels import MAX_CLASS_NAME, is_class_name
from calibrant.input.names import NAME_RULE, name_of
from calibrant.results.report import MULTILABEL
from calibrant_server.service.http.parameters import ReadName, SliceKey, TextName
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.ingest.cloudevents import CloudEventSettings
from calibrant_server.service.ingest.multilabel import MAX_LABELS
from calibrant_server.service.ingest.parsed_batch import reject_unknown
from calibrant_server.service.reads.alarms import AlarmBody
from calibrant_server.service.reads.queries import duration, duration_text
from calibrant_server.workers.store.model_config import LABEL_SLICE, SERVE, Mode

SHORTEST_PANE_S = 60
DAY_S = 86_400
MAX_S = 36_525 * DAY_S  # a century: longer spans exceed the range of timestamps


def check_duration(text: str) -> str:
    """Return a duration as ISO 8601; reject all but whole seconds, a century at most."""
    text = duration(text)
    seconds = parse_duration(text)
    if seconds != int(seconds) or seconds > MAX_S:
        raise PydanticCustomError(
            "whole_seconds", "expected a duration of whole seconds, at most P36525D"
        )
    return text


def check_pane_length(text: str) -> str:
    """Return the length of a pane as ISO 8601; reject an invalid one."""
    text = check_duration(text)
    seconds = parse_duration(text)
    fits = DAY_S % seconds == 0 if seconds < DAY_S else seconds % DAY_S == 0
    if seconds < SHORTEST_PANE_S or not fits:
        raise PydanticCustomError(
            "pane", "expected at least a minute that divides a day, or whole days"
        )
    return text


def check_classes(value: Any) -> Any:
    """Return classes unchanged; reject all but distinct names, or a number."""
    if value is None or type(value) is int:
        return value
    good = isinstance(value, list) and all(
        isinstance(each, str) and 1 <= len(each) <= MAX_CLASS_NAME for each in value
    )
    if not good:
        raise PydanticCustomError(
            "classes", "expected a list of names of 1 to 200 characters, or the number of classes"
        )
    for place, each in enumerate(value):
        if not is_class_name(each):
            detail = "received a control character or a line break in name {place}; expected none"
            raise PydanticCustomError("classes", detail, {"place": place})
    if len(set(value)) < len(value):
        raise PydanticCustomError(
            "repeated", "received a name twice; expected a different name for each class"
        )
    return value


MAX_SLICE_KEYS = 64
MAX_SLICE_VALUES = 1000
MAX_VALUES_DESCRIBED = 100  # values of a key whose errors are listed one by one


def _bounded(name: str, n: int, limit: int, what: str) -> None:
    if n > limit:
        detail = f"Received {n} {what} of {name}; expected at most {limit}. Declare fewer."
        raise PydanticCustomError("too_many", "{detail}", {"detail": detail})


def check_n_slices(slices: Any) -> Any:
    """Return slices unchanged; reject too many keys or values before each of them is checked."""
    if isinstance(slices, dict):
        _bounded("slices", len(slices), MAX_SLICE_KEYS, "keys")
        for key, values in slices.items():
            if isinstance(values, list):
                _bounded(str(key)[:60], len(values), MAX_SLICE_VALUES, "values")
                _reject_invalid_value(str(key)[:60], values)
    return slices


def _reject_invalid_value(key: str, values: list[Any]) -> None:
    """Reject many values if one is invalid: pydantic would describe each of them, in a kilobyte."""
    if len(values) <= MAX_VALUES_DESCRIBED:
        return
    for index, value in enumerate(values):
        if name_of(value) is None:
            detail = f"Received an invalid value {index} of {key}; expected {NAME_RULE}."
            raise PydanticCustomError("name", "{detail}", {"detail": detail})


def check_slices(slices: dict[str, list[str] | None]) -> dict[str, list[str] | None]:
    """Return slices unchanged; reject keys with a colon, and lists of values that are empty or have repeats."""
    for key, values in slices.items():
        if values is not None and not 0 < len(set(values)) == len(values):
            detail = "received an empty list or a value twice for {key}; expected each value once, or null for any"
            raise PydanticCustomError("slices", detail, {"key": key})
    return slices


Lasting = Annotated[
    str,
    BeforeValidator(duration_text),
    AfterValidator(check_duration),
    WithJsonSchema({"type": "string", "examples": ["P7D", "7d"]}),
]
Classes = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]] | int | None,
    BeforeValidator(check_classes),
]


MAX_TAGS = 20
TagKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]

# A name does not look like the index of a class.
COMPOSITE = r"^[A-Za-z_][A-Za-z0-9._-]{0,59}$"


class ModelSettings(BaseModel):
    """The settings of a model."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task: Literal["binary", "multiclass", "segmentation", "multilabel"] = "multiclass"
    classes: Classes = Field(
        None,
        description="Names of the classes, or their number; two for a binary model. Of a multi-label model, names of its labels, "
        f"at most {MAX_LABELS}.",
    )
    grid: int = Field(
        3600, ge=2, le=16384, description="Number of cells of the grid of confidence."
    )
    pane: Annotated[str, BeforeValidator(duration_text), AfterValidator(check_pane_length)] = Field(
        "PT1H",
        description="Length of the smallest time slice with state: the shortest time that a query can select.",
    )
    retention: Lasting | None = Field(None, description="Panes older than this are dropped.")
    label_horizon: Lasting | None = Field(
        None,
        description="Age at which the labels of a cohort count as complete. It is then sealed, and the drift alarm evaluates it.",
    )
    slices: Annotated[
        dict[SliceKey, list[TextName] | None],
        BeforeValidator(check_n_slices),
        AfterValidator(check_slices),
    ] = Field(
        {},
        description="Slice keys, each with its values, or null for any value. Other keys and values are rejected. If empty, every "
        "key is accepted. For a key without declared values, values beyond a limit are counted as `other`.",
    )
    unit: Annotated[str, Field(max_length=200)] | None = Field(
        None,
        description="Kind of the independent unit: patient, item. If declared, histograms must state their number of units.",
    )
    listed_classes: list[int] | None = Field(
        None, description="Classes stored separately, if there are more than 64."
    )
    composites: (
        Annotated[
            dict[
                Annotated[str, Field(pattern=COMPOSITE)],
                Annotated[list[int | str], Field(min_length=1, max_length=64)],
            ],
            Field(max_length=MAX_COMPOSITES),
        ]
        | None
    ) = Field(
        None,
        description="Unions of classes, by index or name, that tables of cases store too: "
        '{"whole": [1, 2]}. Requested as `ml1_ace(regions=composites)`.',
    )
    alarm: AlarmBody = Field(AlarmBody(), description="Settings of the drift alarm.")
    cloudevents: CloudEventSettings | None = Field(
        None, description="How CloudEvents become predictions. Default: they are rejected."
    )

    tags: Annotated[dict[TagKey, ReadName], Field(max_length=MAX_TAGS)] = Field(
        {},
        description="Free texts by name, such as owner, team and site, by which lists are filtered.",
    )
    mode: Mode = Field(
        SERVE, description="observe: maps are advice and cannot be promoted or applied."
    )

    @model_validator(mode="after")
    def _agree(self) -> "ModelSettings":
        if self.n_classes is None:
            raise PydanticCustomError(
                "missing",
                'Received no classes; expected the setting classes, their number or their names, such as "classes": 10.',
            )
        self._check_labels()
        return self

    def _check_labels(self) -> None:
        """Check what a multi-label model may declare."""
        names = self.label_names
        if names is None:
            return
        detail = ""
        if not 1 <= len(names) <= MAX_LABELS:
            detail = f"Received {self.n_classes} labels; expected 1 to {MAX_LABELS}."
        elif any(name_of(each) != each for each in names):
            detail = f"Received an invalid label; expected {NAME_RULE}."
        elif LABEL_SLICE in self.slices:
            detail = f"Received the slice {LABEL_SLICE}, whose values are the labels; declare them as classes."
        elif self.listed_classes or self.composites or self.cloudevents:
            detail = "Received listed_classes, composites or cloudevents of a multi-label model; expected none."
        if detail:
            raise PydanticCustomError("labels", "{detail}", {"detail": detail})

    @property
    def label_names(self) -> list[str] | None:
        """Return the names of the labels of a multi-label model, by default their places; None for other models."""
        if self.task != MULTILABEL:
            return None
        named = self.classes
        return (
            named
            if isinstance(named, list)
            else [str(k) for k in range(min(self.n_classes or 0, MAX_LABELS + 1))]
        )

    @property
    def n_classes(self) -> int | None:
        """Return the number of classes; none if it is not declared."""
        if self.classes is None:
            return 2 if self.task == "binary" else None
        return self.classes if isinstance(self.classes, int) else len(self.classes)


class ReasonOfChange(BaseModel):
    """Why settings change."""

    reason: str | None = Field(
        None,
        max_length=50,
        description="Why the tolerance or the label horizon changes; stored with the date of the change.",
    )


class ModelPatch(ModelSettings, ReasonOfChange):
    """Changed settings of a model."""

    @model_validator(mode="after")
    def _agree(self) -> "ModelPatch":
        return self


def settings_of(document: dict[str, Any]) -> ModelSettings:
    """Return the settings in a document, or raise every violated rule."""
    reject_unknown(document, ModelSettings.model_fields)
    return validated(ModelSettings, document)
