"""Providers are plug-ins by entry point `spotd.providers`: spotd never imports one by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotd.ports import Provider

GROUP = "spotd.providers"


class ProviderProblem(Exception):
    """A configured provider cannot be used; the message says what to do."""


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
