"""moto behind the same port: SQS, EventBridge, S3, SSM, STS, IAM and whatever else it knows.

moto keeps its state in the process. Each fake has an account number of its own while it lives, under which moto keeps what is its, and which is
emptied at its end, so that several fakes do not meet; only the names of buckets are one space, as they are at AWS.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_to_bytes

from spotd.testing.fake_aws.events import as_text
from spotd.testing.fake_aws.wire import Answer, Call

_FIRST_ACCOUNT = 123_456_789_012
#: Those whose state a fake may have touched.
_SERVICES = ("events", "iam", "s3", "sqs", "ssm", "sts")
_POLL_S = 0.02
_LONGEST_POLL_S = 20
_FORM = "application/x-www-form-urlencoded"
_SPOT_ROLE = "AWSServiceRoleForEC2Spot"

_accounts: set[int] = set()
_lock = threading.Lock()


class Moto:
    """One account in moto."""

    def __init__(self) -> None:
        try:
            from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 - it costs a second
        except ImportError as error:
            raise ModuleNotFoundError("The fake AWS needs moto: pip install 'spotd[fake-aws]'") from error
        self._application: Any = DomainDispatcherApplication(create_backend_app)
        with _lock:
            number = _FIRST_ACCOUNT
            while number in _accounts:
                number += 1
            _accounts.add(number)
        self._number = number
        self.account = str(number)
        self._closing = threading.Event()
        self._has_iam = False
        self._forget()

    def close(self) -> None:
        """Give the account back, empty."""
        self._closing.set()
        self._forget()
        with _lock:
            _accounts.discard(self._number)

    def _forget(self) -> None:
        for service in _SERVICES:
            module = sys.modules.get(f"moto.{service}.models")
            backends = getattr(module, f"{service}_backends", None)
            if backends is not None and self.account in backends:
                for backend in list(backends[self.account].values()):
                    backend.reset()
                backends.pop(self.account)

    def answer(self, call: Call, server: tuple[str, int]) -> Answer:
        """What moto says."""
        if call.service == "sqs" and call.action == "ReceiveMessage":
            call = self._waited(call)
        if call.service == "iam":
            self._prepare_iam()
        status: list[str] = []
        headers: list[tuple[str, str]] = []

        def start_response(line: str, fields: list[tuple[str, str]], _: object = None) -> Callable[[bytes], object]:
            status.append(line)
            headers.extend(fields)
            return io.BytesIO().write

        chunks: Iterable[bytes] = self._application(self._environ(call, server), start_response)
        try:
            body = b"".join(chunks)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        return Answer(int(status[0].split()[0]), body, dict(headers))

    def _environ(self, call: Call, server: tuple[str, int]) -> dict[str, Any]:
        target = call.path + (f"?{call.query}" if call.query else "")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": call.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(call.path).decode("latin-1"),
            "QUERY_STRING": call.query,
            "REQUEST_URI": target,
            "RAW_URI": target,
            "SERVER_NAME": server[0],
            "SERVER_PORT": str(server[1]),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(call.body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "HTTP_X_MOTO_ACCOUNT_ID": self.account,
        }
        for name, value in call.headers.items():
            if name not in {"content-type", "content-length", "transfer-encoding", "x-moto-account-id"}:
                environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        if "content-type" in call.headers:
            environ["CONTENT_TYPE"] = call.headers["content-type"]
            if call.service == "s3" and call.method == "PUT" and call.headers["content-type"].startswith(_FORM):
                environ["CONTENT_TYPE"] = "binary/octet-stream"  # else Flask would take the object for a form, and moto would store nothing
        environ["CONTENT_LENGTH"] = str(len(call.body))
        return environ

    def _prepare_iam(self) -> None:
        """An account that has used spot instances before has the service's role (facts/cloud-api.md §2.4: else AuthFailure)."""
        from moto.iam.models import iam_backends  # noqa: PLC0415 - it costs a second

        policy = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "spot.amazonaws.com"}}
        with _lock:
            if not self._has_iam:
                self._has_iam = True
                document = json.dumps({"Version": "2012-10-17", "Statement": [policy]})
                path = "/aws-service-role/spot.amazonaws.com/"
                iam_backends[self.account]["aws"].create_role(_SPOT_ROLE, document, path, None, "", [], "3600")

    def instance_profile(self, name_or_arn: str) -> str | None:
        """The ARN of an instance profile."""
        from moto.iam.models import iam_backends  # noqa: PLC0415 - it costs a second

        for profile in iam_backends[self.account]["aws"].instance_profiles.values():
            if name_or_arn in (profile.name, profile.arn):
                return str(profile.arn)
        return None

    def _waited(self, call: Call) -> Call:
        """A long poll, here and not in moto, so that it ends when the fake is closed: the question without its time to wait."""
        from moto.sqs.models import sqs_backends  # noqa: PLC0415 - only where it is used

        try:
            question = dict(json.loads(call.body))
            name = str(question["QueueUrl"]).rstrip("/").rpartition("/")[2]
        except (ValueError, KeyError, TypeError):
            return call  # moto says what is wrong with it
        queue: Any = sqs_backends[self.account][call.region].queues.get(name)
        seconds = question.get("WaitTimeSeconds")
        if queue is None or (isinstance(seconds, int) and not 0 <= seconds <= _LONGEST_POLL_S):
            return call
        wait = float(queue.receive_message_wait_time_seconds if seconds is None else seconds)
        end = time.monotonic() + wait
        while not queue.messages and time.monotonic() < end and not self._closing.wait(_POLL_S):
            pass
        return replace(call, body=json.dumps(question | {"WaitTimeSeconds": 0}).encode())

    def age(self, seconds: float) -> None:
        """Let messages grow older than they are: what waits to be seen again is seen so much sooner. moto knows real time only."""
        module = sys.modules.get("moto.sqs.models")
        if module is None or self.account not in module.sqs_backends:
            return
        earlier_ms = seconds * 1000
        for backend in list(module.sqs_backends[self.account].values()):
            for queue in list(backend.queues.values()):
                for message in list(queue._messages):  # noqa: SLF001 - the visible ones alone are to be had otherwise
                    message.visible_at -= earlier_ms
                    message.delayed_until -= earlier_ms
                    message.sent_timestamp -= int(earlier_ms)

    def put_event(self, region: str, event: Mapping[str, object]) -> None:
        """Put an event on the default bus: to every queue that a rule which matches it names.

        Not by moto's PutEvents, which makes the id, leaves the account away and takes its own time: here the message is EC2's own, to the letter.
        """
        from moto.events.models import events_backends  # noqa: PLC0415 - only where it is used
        from moto.sqs.models import sqs_backends  # noqa: PLC0415

        if self._closing.is_set() or self.account not in events_backends:
            return
        message: Any = dict(event)
        bus = events_backends[self.account][region].event_buses.get("default")
        queues = sqs_backends[self.account][region]
        for rule in list(bus.rules.values()) if bus is not None else ():
            if rule.state != "ENABLED" or not rule.event_pattern.matches_event(message):
                continue
            for target in rule.targets:
                name = str(target["Arn"]).rpartition(":")[2]
                if ":sqs:" in target["Arn"] and name in queues.queues:
                    queues.send_message(name, as_text(event))
