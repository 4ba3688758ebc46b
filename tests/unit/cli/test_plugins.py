"""Verbs that providers bring along."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from spotd.cli import plugins
from spotd.cli.main import main


class _Cloud(ModuleType):
    """A provider's module with a group of verbs and a doctor."""

    def add(self, verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        verbs.add_parser("cloud", help="the cloud's own verbs").set_defaults(execute=lambda _: 7)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--deep", action="store_true")

    def run(self, arguments: argparse.Namespace) -> int:
        return 5 if arguments.deep else 6


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One provider with verbs, and one whose SDK is not installed; what of them was asked for."""
    asked: list[str] = []
    monkeypatch.setitem(sys.modules, "a_cloud", _Cloud("a_cloud"))

    def points(group: str) -> list[EntryPoint]:
        asked.append(group)
        value = "a_cloud:add" if group == plugins.COMMANDS else "a_cloud"
        return [EntryPoint("cloud", value, group), EntryPoint("other", "no_such_sdk:add", group)][: 1 if group != plugins.COMMANDS else 2]

    monkeypatch.setattr(plugins, "_points", points)
    return asked


def test_a_providers_verbs_are_there(loaded: list[str]) -> None:
    """Its own group, and the verbs that every provider may answer."""
    assert main(["cloud"]) == 7
    assert main(["doctor", "cloud"]) == 6
    assert main(["doctor", "cloud", "--deep", "--json"]) == 5
    assert main(["selftest", "cloud"]) == 6


def test_a_verb_of_spotd_does_not_look_for_providers(loaded: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`spotd jobs` must not pay for a cloud's SDK."""
    main(["jobs", "--socket", "/nonexistent"])
    assert loaded == []


def test_a_missing_sdk_is_a_sentence(loaded: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Not a traceback: what to install."""
    assert main(["other"]) == 2
    assert "spotd: other: no_such_sdk is not installed: pip install 'spotd[other]'" in capsys.readouterr().err
