"""Carry out one effect: one provider call, exactly one event, never an exception.

A launch is never retried here. What a failed call proves is in its class (`core.errors`): after a refusal nothing was launched; after anything
else, a surprise in our own code included, the outcome is unknown.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, assert_never

from spotd.core.errors import ProviderError, ProviderUnavailable, Throttled
from spotd.core.events import (
    LaunchNotFound,
    LaunchPending,
    LaunchRefused,
    LaunchSucceeded,
    LaunchUnknown,
    StrayTerminated,
    TerminateAcknowledged,
    TerminateFailed,
)
from spotd.core.plan import Launch, Resolve, Terminate
from spotd.ports import Launched, Pending, Refused, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotd.core.events import Event
    from spotd.core.instance import LaunchRequest
    from spotd.core.plan import Effect
    from spotd.ports import Clock, Provider

_log = logging.getLogger(__name__)


def execute(effect: Effect, providers: Mapping[str, Provider], user_data: Callable[[LaunchRequest], str], clock: Clock) -> Event:
    """The one event that an effect becomes."""
    match effect:
        case Launch(request):
            return _launch(request, providers.get(request.offer.provider), user_data, clock)
        case Resolve(request):
            return _resolve(request, providers.get(request.offer.provider), clock)
        case Terminate():
            return _terminate(effect, providers.get(effect.provider), clock)
        case _:
            assert_never(effect)


def _launch(request: LaunchRequest, provider: Provider | None, user_data: Callable[[LaunchRequest], str], clock: Clock) -> Event:
    if provider is None:
        return LaunchUnknown(clock.now(), request.token, _not_configured(request.offer.provider))
    try:
        launched = provider.launch(request, user_data(request))
    except ProviderUnavailable as error:
        return LaunchUnknown(clock.now(), request.token, str(error))
    except ProviderError as error:
        return _refused(request, error, clock)
    except Exception as error:  # noqa: BLE001 - an effect becomes one event, whatever happens
        _log.exception("launch failed in spotd itself", extra={"instance": request.token})
        return LaunchUnknown(clock.now(), request.token, _bug(error))
    return LaunchSucceeded(clock.now(), request.token, launched.provider_id, launched.launched_at, launched.details)


def _refused(request: LaunchRequest, error: ProviderError, clock: Clock) -> LaunchRefused:
    wait = error.retry_after.total_seconds() if isinstance(error, Throttled) else None
    return LaunchRefused(clock.now(), request.token, error.kind, error.scope, error.code, error.message, wait)


def _resolve(request: LaunchRequest, provider: Provider | None, clock: Clock) -> Event:
    if provider is None:
        return LaunchUnknown(clock.now(), request.token, _not_configured(request.offer.provider))
    try:
        outcome = provider.outcome(request)
    except ProviderError as error:
        # Whatever it is, it is about the question, not about the launch.
        return LaunchUnknown(clock.now(), request.token, str(error))
    except Exception as error:  # noqa: BLE001 - an effect becomes one event, whatever happens
        _log.exception("asking for a launch failed in spotd itself", extra={"instance": request.token})
        return LaunchUnknown(clock.now(), request.token, _bug(error))
    match outcome:
        case Launched():
            return LaunchSucceeded(clock.now(), request.token, outcome.provider_id, outcome.launched_at, outcome.details)
        case Pending():
            return LaunchPending(clock.now(), request.token)
        case Refused():
            return _refused(request, outcome.error, clock)
        case Unknown():
            return LaunchNotFound(clock.now(), request.token)
        case _:
            assert_never(outcome)


def _terminate(effect: Terminate, provider: Provider | None, clock: Clock) -> Event:
    failure = ""
    if provider is None:
        failure = _not_configured(effect.provider)
    else:
        try:
            provider.terminate(effect.region, effect.provider_id)
        except ProviderError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - an effect becomes one event, whatever happens
            _log.exception("terminate failed in spotd itself", extra={"provider_id": effect.provider_id})
            failure = _bug(error)
    if effect.instance_id is None:
        return StrayTerminated(clock.now(), effect.provider, effect.region, effect.provider_id, failure)
    if failure:
        return TerminateFailed(clock.now(), effect.instance_id, failure)
    return TerminateAcknowledged(clock.now(), effect.instance_id)


def _not_configured(provider: str) -> str:
    return f"provider {provider} is not configured any more; put [providers.{provider}] back into spotd.toml until its instances are gone"


def _bug(error: Exception) -> str:
    # Only the class: a message of an unexpected error may hold anything.
    return f"unexpected {type(error).__name__} in spotd; see the daemon's log"
