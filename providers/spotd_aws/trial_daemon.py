"""A daemon of its own for a self-test: a process with its own state, socket and deployment, spoken to by the command line, as users do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spotd_aws.installation import Unusable
from spotd_aws.trial_pace import Pace
from spotd_aws.trial_report import Failed

_PATIENCE_S = 60.0
_START_S = 60.0
_STOP_S = 30.0
#: What Linux takes for a socket is little more than this.
_LONGEST_SOCKET = 100
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class Daemon:
    """One daemon, from its directory's making to its directory's end."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="spotd-selftest-"))
        if len(os.fsencode(self._socket)) > _LONGEST_SOCKET:
            # A deep TMPDIR; there is always this one.
            self.directory.rmdir()
            self.directory = Path(tempfile.mkdtemp(prefix="spotd-selftest-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _socket(self) -> Path:
        return self.directory / "sock"

    @property
    def _log(self) -> Path:
        return self.directory / "daemon.log"

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def write(self, name: str, content: Mapping[str, Any]) -> Path:
        """A file of JSON (which is YAML) in its directory."""
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
        return path

    def start(self, settings: Mapping[str, Any], pace: Pace) -> None:
        """Start it with these settings, beside where things lie, and wait until it answers. Unusable, with its own sentence, if it will not."""
        policies = self.directory / "policies"
        policies.mkdir(exist_ok=True)
        places = {"state_dir": str(self.directory / "state"), "socket": str(self._socket), "policies_dir": str(policies)}
        file = self.directory / "spotd.toml"
        file.write_text(toml({**places, **settings}))
        with self._log.open("ab") as log:
            # In a session of its own: Ctrl-C is for us, and it has to run on until its machines are ended.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "spotd.cli.main", "daemon", "--config", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
            )

        def answers() -> bool:
            if not self.running:
                raise Unusable(f"the self-test's daemon does not start: {self._last_words()}")
            return self._spotd("status").returncode == 0

        pace.until(answers, "the daemon answers", _START_S)

    def ask(self, *words: str) -> Any:
        """The JSON that a command of `spotd` answers. Failed, with its sentence, where it answers none."""
        done = self._spotd(*words)
        try:
            if done.returncode == 0:
                return json.loads(done.stdout)
        except ValueError:
            pass
        if not self.running:
            raise Failed(f"the daemon has ended: {self._last_words()}")
        said = done.stderr.strip().removeprefix("spotd: ")
        raise Failed(f"spotd {words[0]}: {said or f'exit code {done.returncode}'}")

    def _spotd(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spotd.cli.main", *words, "--json", "--socket", str(self._socket)]
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE_S,
                check=False,
                env=_environment(),
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", f"no answer within {_PATIENCE_S:.0f} s")

    def log(self, lines: int = 60) -> str:
        """The end of its log."""
        try:
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def _last_words(self) -> str:
        return self.log(1).removeprefix("spotd: ") or "it says nothing"

    def stop(self) -> None:
        """End it: it launches nothing any more."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """Remove its directory. OSError where something stays."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory)


def _environment() -> dict[str, str]:
    """Ours, without the variables that would override the daemon's file."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SPOTD_")}


def toml(table: Mapping[str, Any]) -> str:
    """A table as TOML; tables within stand in line. None is left out."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if value is not None)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # JSON's escapes are among TOML's, which takes no DEL besides.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            return "{ " + ", ".join(_pairs(value)) + " }" if value else "{}"
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case int() | float():
            return repr(value)
        case _:
            raise Unusable(f"{value!r} in [providers.aws] is of a kind that no key there takes")


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None:
            yield f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else _value(key)
