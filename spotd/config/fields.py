"""The types that the models' fields are made of. Each refuses with a sentence and says what is accepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from spotd.config.errors import printable
from spotd.config.quantities import NotQuantity, duration, kind_of, price, size

_T = TypeVar("_T")


class Model(BaseModel):
    """A block of keys: unknown ones are errors, and text is never taken for a number or a number for text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def refusal(message: str, hint: str = "") -> PydanticCustomError:
    """An error that `validation` shows as it is. Braces would be taken for placeholders, so the words travel as context."""
    return PydanticCustomError("spotd", "{message}", {"message": message, "hint": hint})


def _quantity(parse: Callable[[object], _T]) -> PlainValidator:
    def validate(value: object) -> _T:
        try:
            return parse(value)
        except NotQuantity as error:
            raise refusal(error.message, error.hint) from None

    return PlainValidator(validate)


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise refusal("must be more than nothing")
    return value


Duration = Annotated[timedelta, _quantity(duration), AfterValidator(_positive)]
UsdPerHour = Annotated[Decimal, _quantity(price)]
Size = Annotated[int, _quantity(size), PlainSerializer(int)]


def text(limit: int, what: str = "text", *, lines: bool = True) -> PlainValidator:
    """Text of at least one visible character and at most `limit`."""

    def validate(value: object) -> str:
        if not isinstance(value, str):
            hint = f'write it in quotes: "{value}"' if isinstance(value, (int, Decimal)) else ""
            raise refusal(f"is {kind_of(value)}; {what} is wanted", hint)
        if not value.strip():
            raise refusal("is empty")
        if len(value) > limit:
            raise refusal(f"is {len(value)} characters long, at most {limit} are taken")
        if not lines and "\n" in value:
            raise refusal("must be one line")
        if any((c < " " and c not in "\n\t") or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in value):
            raise refusal("holds a control character")
        return value

    return PlainValidator(validate)


def word(pattern: str, limit: int, says: str) -> PlainValidator:
    """A name: `says` tells in words what the pattern allows."""
    compiled = re.compile(pattern, re.ASCII)

    def validate(value: object) -> str:
        if not isinstance(value, str):
            hint = f'write it in quotes: "{value}"' if isinstance(value, (int, Decimal)) else ""
            raise refusal(f"is {kind_of(value)}; a name is wanted", hint)
        if len(value) > limit or not compiled.fullmatch(value):
            raise refusal(f"{printable(value)} cannot be used here", says)
        return value

    return PlainValidator(validate)


NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_NAME_SAYS = "at most 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit"
Name = Annotated[str, word(NAME_PATTERN, 63, _NAME_SAYS)]
ProviderName = Annotated[str, word(r"[a-z][a-z0-9_-]{0,31}", 32, "a provider's name is lower-case, such as aws, gcp or local")]
#: Regions and instance types: what clouds use, and nothing that could be mistaken for syntax.
CloudWord = Annotated[str, word(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", 63, "letters, digits, dots and dashes, such as us-west-2 or p5.48xlarge")]
UserName = Annotated[str, word(r"[A-Za-z_][A-Za-z0-9._@-]{0,63}", 64, "a user's name on the control host")]
InstanceProfile = Annotated[
    str,
    word(
        r"[A-Za-z0-9+=,.@_-]{1,128}|arn:aws[a-z-]*:iam::\d{12}:instance-profile/[A-Za-z0-9+=,.@_/-]{1,512}",
        620,
        "the name or the ARN of an IAM instance profile",
    ),
]
Script = Annotated[str, text(20_000, "a shell command")]
Hook = Annotated[str, text(4_000, "a shell command")]


def pairs(key_pattern: str, key_says: str, value_limit: int, count: int, reserved: str) -> PlainValidator:
    """A block of names and texts, such as `env`. Names that begin with `reserved` are spotd's own."""
    compiled = re.compile(key_pattern, re.ASCII)

    def validate(value: object) -> Mapping[str, str]:
        if not isinstance(value, dict):
            raise refusal(f"is {kind_of(value)}; a block of `NAME: value` is wanted")
        if len(value) > count:
            raise refusal(f"holds {len(value)} entries, at most {count} are taken")
        for key, content in value.items():
            if not isinstance(key, str) or not compiled.fullmatch(key):
                raise refusal(f"{printable(str(key))} cannot be a name here", key_says)
            if key.lower().startswith(reserved):
                raise refusal(f"{printable(key)} is a name that spotd sets itself", f"names that begin with {reserved} are reserved")
            if not isinstance(content, str):
                raise refusal(f"the value of {printable(key)} is {kind_of(content)}; text is wanted")
            if len(content) > value_limit:
                raise refusal(f"the value of {printable(key)} is {len(content)} characters long, at most {value_limit} are taken")
            if any((c < " " and c not in "\n\t") or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in content):
                raise refusal(f"the value of {printable(key)} holds a control character")
        return dict(value)

    return PlainValidator(validate)


Env = Annotated[
    Mapping[str, str],
    pairs(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "letters, digits and underscores, not beginning with a digit", 32_768, 200, "spotd_"),
]
Labels = Annotated[
    Mapping[str, str],
    pairs(
        r"[a-z][a-z0-9_-]{0,62}",
        "labels become cloud tags: lower-case letters, digits, dashes and underscores, at most 63, beginning with a letter",
        63,
        20,
        "spotd",
    ),
]


def filled(values: tuple[_T, ...]) -> tuple[_T, ...]:
    """Refuse an empty list. After its items: pydantic's own `min_length` also complains when every item was refused."""
    if not values:
        raise refusal("is empty", "at least 1 is wanted")
    return values


def unique(values: tuple[_T, ...]) -> tuple[_T, ...]:
    """Refuse a list that names something twice."""
    seen: list[Any] = []
    for value in values:
        if value in seen:
            raise refusal(f"names {printable(str(value))} twice")
        seen.append(value)
    return values
