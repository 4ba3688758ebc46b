"""Bring back the newest checkpoint that verifies. A broken one is left out, never half taken."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import threading
from typing import Any

from spotd.node import files, tree
from spotd.node.backoff import Backoff
from spotd.node.clock import Clock
from spotd.node.spec import Resume
from spotd.node.web import Refused, Web, WebError

_MANIFEST_LIMIT = 64 << 20
_DENIED = (400, 401, 403)  # an address that has expired, most likely
# What says nothing about a checkpoint: it may verify once the store lets us have it. It is asked for as long as a store that does not answer.
_NOT_NOW = (401, 403, 408, 409, 429)
_TRIES = 3  # for content that is wrong: a cut transfer is right the next time (facts/reclaim.md §5, 79), a broken object is not
_SIGN_BATCH = 200
_PARALLEL = 4


class Broken(Exception):
    """This checkpoint does not verify; the text says what is wrong with it."""


class Cancelled(Exception):
    """There is no point in restoring any more."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """What now lies in the checkpoint directory: *name* as in the manifest; *checkpoint* None when nothing verified."""

    checkpoint: str | None
    step: int | None
    name: str | None
    skipped: tuple[str, ...]


class Restorer:
    """Downloads checkpoints of one job into one directory."""

    def __init__(self, web: Web, session: str, directory: str, placed: str, clock: Clock, cancel: threading.Event) -> None:
        self._web = web
        self._session = session
        self._directory = directory
        self._placed = placed
        self._staging = directory.rstrip("/") + ".spotd-restore"
        self._clock = clock
        self._cancel = cancel
        self._renewed: dict[str, str] = {}  # addresses of manifests, by checkpoint

    def newest(self, resume: tuple[Resume, ...]) -> Restored:
        """Try *resume* from its first on. Raises Cancelled, and OSError where this machine's disk is at fault."""
        skipped: list[str] = []
        try:
            for entry in resume:
                try:
                    manifest = self._manifest(entry)
                    self._download(entry, manifest)
                    self._install(manifest)
                    return Restored(entry.checkpoint, manifest.get("step"), manifest.get("name"), tuple(skipped))
                except Broken as error:
                    skipped.append(f"{entry.checkpoint}: {error}"[:300])
            return Restored(None, None, None, tuple(skipped))
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def _manifest(self, entry: Resume) -> dict[str, Any]:
        data = self._persist(lambda: self._checked_manifest(entry))
        try:
            manifest = json.loads(data)
        except ValueError as error:
            raise Broken("its manifest is not JSON") from error
        if not isinstance(manifest, dict) or manifest.get("format") != 1:
            raise Broken("its manifest has a format this agent does not know")
        for file in _listed(manifest, "files"):
            if not _is_plain(file.get("path")) or not isinstance(file.get("object"), int) or not isinstance(file.get("size"), int):
                raise Broken("its manifest names a path that leads out of it")
        for link in _listed(manifest, "links"):
            if not _is_plain(link.get("path")) or not tree.link_stays(link["path"], str(link.get("target"))):
                raise Broken("its manifest names a link that leads out of it")
        return manifest

    def _checked_manifest(self, entry: Resume) -> bytes:
        try:
            data = self._web.read(self._renewed.get(entry.checkpoint, entry.manifest_url), _MANIFEST_LIMIT)
        except Refused as error:
            if error.status in _DENIED:
                self._renew(entry)
            raise
        if hashlib.sha256(data).hexdigest() != entry.manifest_sha256:
            raise Broken("its manifest's sha256 is wrong")
        return data

    def _download(self, entry: Resume, manifest: dict[str, Any]) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        os.makedirs(self._staging, mode=0o700)
        listed = _listed(manifest, "files")
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
            for start in range(0, len(listed), _SIGN_BATCH):
                batch = listed[start : start + _SIGN_BATCH]
                urls = self._persist(lambda batch=batch: self._sign(entry, batch))
                list(pool.map(lambda file, urls=urls: self._file(entry, file, urls), batch))

    def _renew(self, entry: Resume) -> None:
        """Ask for a new address of the manifest: that of a specification kept on disk, or of a long wait, is old."""
        url = self._signed(entry, []).get("manifest")
        if isinstance(url, str):
            self._renewed[entry.checkpoint] = url

    def _sign(self, entry: Resume, wanted: list[dict[str, Any]]) -> dict[str, str]:
        urls = self._signed(entry, wanted).get("objects")
        if not isinstance(urls, dict):
            raise WebError("no addresses came back")
        return urls

    def _signed(self, entry: Resume, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        request = {"checkpoint": entry.checkpoint, "objects": sorted({file["object"] for file in wanted})}
        try:
            return self._web.call("/v1/agent/sign", request, session=self._session)
        except Refused as error:
            if error.status < 500:
                raise Broken(f"the daemon gives no addresses: {error}") from error
            raise

    def _file(self, entry: Resume, file: dict[str, Any], urls: dict[str, str]) -> None:
        path = os.path.join(self._staging, file["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)

        def attempt() -> None:
            url = urls.get(str(file["object"]))
            if url is None:
                raise Broken(f"object {file['object']} is not to be had")
            try:
                found = self._web.fetch(url, path, cancel=self._cancel)
            except Refused as error:
                if error.status in _DENIED:
                    urls.update(self._sign(entry, [file]))
                raise
            if found != (file["size"], file.get("sha256")):
                raise Broken(f"{file['path']} has another size or sha256")

        self._persist(attempt)
        os.chmod(path, int(file.get("mode", 0o600)) & 0o777 | 0o400)

    def _persist(self, attempt: Any) -> Any:
        """Call *attempt* until it succeeds: for ever while nobody answers or lets us in, a few times while the content is wrong."""
        backoff = Backoff()
        wrong = 0
        while True:
            try:
                return attempt()
            except Broken as error:
                problem = error
                wrong += 1
            except WebError as error:
                problem = Broken(str(error))
                if isinstance(error, Refused) and error.status < 500 and error.status not in _NOT_NOW and error.code != "NoSuchBucket":
                    wrong = _TRIES if error.status == 404 else wrong + 1
            if wrong >= _TRIES:
                raise problem
            if self._cancel.is_set() or self._clock.wait(self._cancel, backoff.failed()):
                raise Cancelled

    def _install(self, manifest: dict[str, Any]) -> None:
        """Move the verified files into place of what was restored here before, if anything was."""
        os.makedirs(self._directory, exist_ok=True)
        for path in (files.read_json(self._placed) or {}).get("paths", ()):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, path))
        # Before the first is moved: a restore that breaks off is begun again, and then takes these away.
        files.write_json(self._placed, {"paths": [item["path"] for key in ("files", "links") for item in _listed(manifest, key)]})
        for file in _listed(manifest, "files"):
            target = os.path.join(self._directory, file["path"])
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(os.path.join(self._staging, file["path"]), target)
        for link in _listed(manifest, "links"):
            path = os.path.join(self._directory, link["path"])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if os.path.islink(path):
                os.unlink(path)
            if not os.path.lexists(path):
                os.symlink(link["target"], path)


def _listed(manifest: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = manifest.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Broken(f"its manifest has no list of {key}")
    return value


def _is_plain(path: Any) -> bool:
    return isinstance(path, str) and bool(path) and "\0" not in path and not os.path.isabs(path) and ".." not in path.split("/")
