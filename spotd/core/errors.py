"""What can go wrong at a provider, in the vocabulary of the loop's choice (DESIGN §5).

Each provider maps its SDK's codes to these in one table. `ProviderUnavailable` is the only one after which the outcome is unknown; it is
also what anything unmapped becomes, so that a surprise is never mistaken for "nothing was launched".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum, unique


@unique
class Scope(StrEnum):
    """How far a refusal reaches, from the narrowest: what is cooled down after it."""

    OFFER = "offer"
    ZONE = "zone"
    REGION = "region"
    PROVIDER = "provider"


@unique
class ErrorKind(StrEnum):
    """One word for each class below: what the journal and `explain` show."""

    NO_CAPACITY = "no_capacity"
    QUOTA_EXCEEDED = "quota_exceeded"
    PRICE_TOO_HIGH = "price_too_high"
    THROTTLED = "throttled"
    NOT_AUTHORIZED = "not_authorized"
    INVALID_REQUEST = "invalid_request"
    MISCONFIGURED = "misconfigured"
    UNAVAILABLE = "unavailable"


@dataclass(slots=True, eq=False)
class ProviderError(Exception):
    """Base of all errors a provider may raise. `message` is one sentence for a person, `code` the cloud's own code (never a secret)."""

    message: str
    code: str = ""

    @property
    def kind(self) -> ErrorKind:
        """The word for this error."""
        return ErrorKind.UNAVAILABLE

    @property
    def scope(self) -> Scope:
        """What it is true of."""
        return Scope.PROVIDER

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" if self.code else self.message


@dataclass(slots=True, eq=False)
class NoCapacity(ProviderError):
    """Nothing was launched: the pool is empty. The loop cools the scope and tries the next offer."""

    where: Scope = Scope.OFFER

    @property
    def kind(self) -> ErrorKind:  # noqa: D102 - as in the base class
        return ErrorKind.NO_CAPACITY

    @property
    def scope(self) -> Scope:  # noqa: D102
        return self.where


@dataclass(slots=True, eq=False)
class QuotaExceeded(ProviderError):
    """Nothing was launched: the account's limit is reached. The loop cools region x market, tells ops, tries elsewhere."""

    @property
    def kind(self) -> ErrorKind:  # noqa: D102
        return ErrorKind.QUOTA_EXCEEDED

    @property
    def scope(self) -> Scope:  # noqa: D102
        return Scope.REGION


@dataclass(slots=True, eq=False)
class PriceTooHigh(ProviderError):
    """Nothing was launched: the market is above our cap. The loop skips the offer and refreshes its price."""

    @property
    def kind(self) -> ErrorKind:  # noqa: D102
        return ErrorKind.PRICE_TOO_HIGH

    @property
    def scope(self) -> Scope:  # noqa: D102
        return Scope.OFFER


@dataclass(slots=True, eq=False)
class Throttled(ProviderError):
    """Nothing was launched: too many calls. The loop slows this provider down."""

    retry_after: timedelta = timedelta(seconds=5)

    @property
    def kind(self) -> ErrorKind:  # noqa: D102
        return ErrorKind.THROTTLED


@dataclass(slots=True, eq=False)
class NotAuthorized(ProviderError):
    """Nothing was launched: a permission is missing. Never disguised as no capacity; the loop stops using this provider and tells ops `action`."""

    action: str = ""

    @property
    def kind(self) -> ErrorKind:  # noqa: D102
        return ErrorKind.NOT_AUTHORIZED


@dataclass(slots=True, eq=False)
class InvalidRequest(ProviderError):
    """Nothing was launched and nothing will be: the request itself is wrong. The job fails with the sentence; no retry."""

    field: str = ""

    @property
    def kind(self) -> ErrorKind:  # noqa: D102
        return ErrorKind.INVALID_REQUEST

    @property
    def scope(self) -> Scope:  # noqa: D102
        return Scope.OFFER


@dataclass(slots=True, eq=False)
class Misconfigured(ProviderError):
    """Nothing was launched: what ops configured for this region is not there (an image, a subnet). Other regions can take the job meanwhile.

    It is no fault of the job, so it must not fail it as InvalidRequest does. The loop cools region x market, or less, and tells ops the sentence.
    """

    where: Scope = Scope.REGION

    @property
    def kind(self) -> ErrorKind:  # noqa: D102
        return ErrorKind.MISCONFIGURED

    @property
    def scope(self) -> Scope:  # noqa: D102
        return self.where


@dataclass(slots=True, eq=False)
class ProviderUnavailable(ProviderError):
    """Time-out, 5xx, or anything unmapped: the outcome is *unknown*. The loop asks `outcome()`, then repeats the identical call."""


#: Refusals: after these nothing was launched. Everything else leaves the outcome unknown.
Refusal = NoCapacity | QuotaExceeded | PriceTooHigh | Throttled | NotAuthorized | InvalidRequest | Misconfigured
