"""Who is calling: sessions by their hash."""

from __future__ import annotations

from collections.abc import Mapping

from spotd.core.instance import Instance
from spotd.core.world import World
from spotd.daemon.credentials import same, sha256_hex
from spotd.ports import Recorder


class Sessions:
    """An index of the recorded sessions. A session once exchanged never changes, so only a miss has to look at the world again."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._seen: World | None = None
        self._instances: Mapping[str, str] = {}

    def instance(self, session: str) -> Instance | None:
        """The instance this session belongs to, as it is recorded now; None for a session nobody has."""
        digest = sha256_hex(session)
        world = self._recorder.world
        if digest not in self._instances and self._seen is not world:
            self._instances = {i.session_sha256: i.id for i in world.instances.values() if i.session_sha256 is not None}
            self._seen = world
        instance = world.instances.get(self._instances.get(digest, ""))
        if instance is None or instance.session_sha256 is None or not same(instance.session_sha256, digest):
            return None
        return instance
