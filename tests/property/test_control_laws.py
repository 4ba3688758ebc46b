"""Whatever is sent to the control API, it answers with JSON, never 5xx, and a refusal changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.control_world import JOB, Desk

_texts = st.one_of(st.sampled_from(["", "1", "-1", "x", "llama-ft", "0" * 64, "30d", "spot", "nan", "1e999"]), st.text(max_size=12))
_refs = _texts.map(lambda text: quote(text, safe=""))
_paths = st.one_of(
    st.sampled_from(["/v1/jobs", "/v1/offers", "/v1/prices", "/v1/savings", "/v1/events", "/v1/policies", "/v1/status", "/v1/policies/check"]),
    st.builds(lambda ref, rest: f"/v1/jobs/{ref}{rest}", _refs, st.sampled_from(["", "/cancel", "/explain", "/logs"])),
    st.builds(lambda ref: f"/v1/workdirs/{ref}", _refs),
    st.builds(lambda ref: f"/v1/{ref}", _refs),
)
_names = st.sampled_from(
    [
        *("all", "owner", "policy", "status", "label", "limit", "job", "kind", "after"),
        *("since", "until", "by", "market", "type", "attempt", "offset", "rank"),
    ]
)
_queries = st.lists(st.tuples(_names, _texts), max_size=4)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_keys = st.sampled_from(["name", "policy", "run", "env", "labels", "retries", "owner", "checkpoint", "workdir", "setup"])
_specs = st.dictionaries(_keys, st.sampled_from(["demo", "x"]) | _json)
_bodies = st.one_of(
    st.binary(max_size=60),
    _json.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({}, optional={"yaml": _texts | st.just(JOB), "file": _json, "spec": _specs, "workdir_sha256": _texts}).map(
        lambda value: json.dumps(value).encode()
    ),
)


@pytest.fixture(name="desk", scope="module")
def _desk() -> Iterator[Desk]:
    with Desk() as desk:
        desk.see_offers()
        desk.submit()
        desk.run_job()
        yield desk


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]), path=_paths, query=_queries, body=_bodies)
def test_any_request_is_answered(desk: Desk, method: str, path: str, query: list[tuple[str, str]], body: bytes) -> None:
    """Every answer is below 500; 4xx has code and message, printable, without a traceback, and nothing was recorded."""
    before = desk.facts()
    encoded = urlencode(query, errors="replace")
    status, headers, content = desk.raw(method, f"{path}?{encoded}", body if method in {"POST", "PUT"} else None)

    assert status < 500, (method, path, query, body, content)
    if status >= 400:
        assert before == desk.facts()
        error: dict[str, Any] = json.loads(content)["error"]
        assert error["code"]
        assert error["message"].isprintable()
    elif "X-Spotd-Attempt" not in headers:
        assert isinstance(json.loads(content), dict)
