"""Providers and checkpoint stores are plug-ins by entry point (`spotd.providers`, `spotd.stores`): spotd never imports one by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotd.ports import ObjectStore, Provider

GROUP = "spotd.providers"
#: By scheme; each is `open_store(url, settings) -> ObjectStore`, which asks nobody and raises ValueError for what is not right.
STORES = "spotd.stores"


class ProviderProblem(Exception):
    """A configured provider cannot be used; the message says what to do."""


class StoreProblem(Exception):
    """The configured checkpoint store cannot be used; the message says what to do."""


def load_providers(tables: Mapping[str, Mapping[str, object]], deployment: str) -> dict[str, Provider]:
    """Build every configured provider. ProviderProblem names the table and the next step."""
    known = {point.name: point for point in entry_points(group=GROUP)}
    providers: dict[str, Provider] = {}
    for name, table in tables.items():
        point = known.get(name)
        if point is None:
            have = ", ".join(sorted(known)) or "none"
            raise ProviderProblem(f"[providers.{name}]: no provider of this name is installed (installed: {have})")
        try:
            build = point.load()
            providers[name] = build(table, deployment)
        except ImportError as error:
            # A missing SDK becomes an operator's sentence.
            raise ProviderProblem(f"[providers.{name}]: {error.name or error} is not installed: pip install 'spotd[{name}]'") from error
        except ValueError as error:
            raise ProviderProblem(f"[providers.{name}]: {error}") from error
    return providers


def open_store(url: str, settings: Mapping[str, object]) -> ObjectStore:
    """The checkpoint store of this address. StoreProblem names the key of spotd.toml and the next step."""
    scheme = url.partition("://")[0]
    known = {point.name: point for point in entry_points(group=STORES)}
    point = known.get(scheme)
    if point is None:
        have = ", ".join(f"{name}://" for name in sorted(known)) or "none"
        raise StoreProblem(f"[checkpoints] store: no store for {scheme}:// is installed (installed: {have})")
    try:
        make = point.load()
        store: ObjectStore = make(url, settings)
    except ImportError as error:
        extra = point.module.partition(".")[0].removeprefix("spotd_")
        raise StoreProblem(f"[checkpoints] store: {error.name or error} is not installed: pip install 'spotd[{extra}]'") from error
    except ValueError as error:
        raise StoreProblem(f"[checkpoints] {error}") from error
    return store
