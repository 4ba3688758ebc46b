"""Whatever is sent to the agents' API: never a 5xx, never a change on a 4xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract import agent_world as w
from tests.contract.agent_world import INSTANCE, Daemon, a_sync, said

#: One of everything that an agent can say.
SAYINGS = [w.READY, w.STARTED, w.CHECKPOINT, w.NOTICE, {"type": "notice_cancelled", "notice_id": "n"}, w.DRAINED, w.EXITED, w.FAILED]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["ready", "notice", "checkpoint", "00001-000001", "a" * 64, "a" * 32, "x" * 2001, "\ud800", "\0"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=10), inner, max_size=4), max_leaves=8
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all examples; each begins with the same world."""
    with Daemon(tmp_path_factory.mktemp("fuzz")) as daemon:
        daemon.session()
        daemon.commit_manifest("00001-000001")
        yield daemon


@st.composite
def damaged_bodies(draw: st.DrawFn) -> Any:
    """A heartbeat that is right but for up to three places, which may be anywhere in it."""
    sayings = draw(st.lists(st.sampled_from(SAYINGS), max_size=4))
    body: Any = json.loads(json.dumps(a_sync(*(said(saying, n + 1, 1.0) for n, saying in enumerate(sayings)))))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = body
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
            elif isinstance(place, dict) and draw(st.booleans()):
                del place[key]
                break
            else:
                place[key] = draw(values)
                break
    return body


def post(daemon: Daemon, path: str, body: bytes) -> w.Answer:
    """Send it as the agent, and hold the claims that hold for every request."""
    before = daemon.recorder.world
    events = len(daemon.recorder.events)
    answer = daemon.request("POST", path, data=body, headers=daemon.session())
    assert answer.status < 500, answer.content
    if answer.status >= 400:
        assert daemon.recorder.world is before
        assert len(daemon.recorder.events) == events
        assert set(answer.json["error"]) == {"code", "message"}
    return answer


@given(body=damaged_bodies())
def test_damaged_heartbeats(daemon: Daemon, body: Any) -> None:
    """A heartbeat with wrong places is refused whole or, if it is one after all, recorded up to the number it is acknowledged to."""
    beginning = daemon.recorder.world
    try:
        answer = post(daemon, "/v1/agent/sync", json.dumps(body).encode())
        assert answer.status in {200, 422}
        if answer.status == 200:
            assert answer.json["acknowledged"] == daemon.recorder.instance.last_seq
            again = len(daemon.recorder.journal)
            second = post(daemon, "/v1/agent/sync", json.dumps(body).encode())
            assert second.json["acknowledged"] >= answer.json["acknowledged"]
            if second.json["acknowledged"] == answer.json["acknowledged"]:
                assert len(daemon.recorder.journal) == again
    finally:
        daemon.recorder.world = beginning


@given(body=st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("path", ["sync", "bootstrap", "sign"])
def test_any_body(daemon: Daemon, path: str, body: bytes) -> None:
    """Bytes that are no request of the page are refused."""
    assert post(daemon, f"/v1/agent/{path}", body).status in {401, 422}


@given(
    changes=st.dictionaries(st.sampled_from(["instance", "credential", "nonce", "boot_id", "agent"]), scalars, max_size=3),
)
def test_damaged_bootstraps(daemon: Daemon, changes: dict[str, Any]) -> None:
    """A first call with wrong places opens nothing; the right one gets its session again."""
    body = {
        "instance": INSTANCE,
        "credential": daemon.credentials.bootstrap(INSTANCE),
        "nonce": w.NONCE,
        "boot_id": "b",
        "agent": "0" * 64,
        **changes,
    }
    answer = post(daemon, "/v1/agent/bootstrap", json.dumps(body).encode())
    assert answer.status in {200, 401, 409, 422}
    if answer.status == 200:
        assert body["nonce"] == w.NONCE
        assert body["credential"] == daemon.credentials.bootstrap(INSTANCE)


@given(key=st.text(st.characters(codec="utf-8"), max_size=30), query=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40))
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_any_object_address(daemon: Daemon, method: str, key: str, query: str) -> None:
    """An address that nobody signed opens nothing, whatever it looks like, and writes nothing."""
    before = daemon.store.list("")
    answer = daemon.request(method, f"/o/{key}?{query}", data=b"x")
    assert answer.status in {400, 401, 404, 405}
    assert daemon.store.list("") == before
