"""EC2's way of speaking: forms in, XML out (query protocol of 2016-11-15), and errors in the dialect of each service."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeVar
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
T = TypeVar("T")

#: What can be said in an answer. None is left out, a list becomes `<item>`s.
Value = str | bool | int | Decimal | datetime | None | Mapping[str, "Value"] | Sequence["Value"]


class AwsError(Exception):
    """A refusal, in AWS's own words: code, sentence and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as far as it matters who it is for."""

    service: str
    region: str
    action: str
    method: str
    #: As it stood in the request line, still quoted.
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Form:
    """The parameters of a query request: `Filter.1.Value.2=x` and the like, read as lists and groups."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    @classmethod
    def parse(cls, body: bytes) -> Form:
        """From a body of application/x-www-form-urlencoded."""
        return cls(dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)))

    def text(self, name: str, default: str = "") -> str:
        """One value."""
        return self.values.get(name, default)

    def required(self, name: str) -> str:
        """One value that must be there."""
        if not self.values.get(name):
            raise AwsError("MissingParameter", f"The request must contain the parameter {name}")
        return self.values[name]

    def flag(self, name: str) -> bool:
        """Whether it says true."""
        return self.values.get(name, "").lower() == "true"

    def number(self, name: str, low: int, high: int, default: int) -> int:
        """A whole number within bounds, or the default where there is none."""
        text = self.values.get(name)
        if text is None:
            return default
        if not text.isdecimal() or not low <= int(text) <= high:
            raise AwsError("InvalidParameterValue", f"Value ( {text} ) for parameter {name} is invalid. Expecting a value between {low} and {high}.")
        return int(text)

    def time(self, name: str) -> datetime | None:
        """An instant, UTC where it does not say otherwise."""
        text = self.values.get(name)
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise AwsError("InvalidParameterValue", f"Value ({text}) for parameter {name} is invalid. Invalid date format.") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def listed(self, name: str) -> list[str]:
        """`Name.1`, `Name.2`, … in their order."""
        numbered = [(int(key[len(name) + 1 :]), value) for key, value in self.values.items() if _numbered(key, name)]
        return [value for _, value in sorted(numbered)]

    def groups(self, name: str) -> list[Form]:
        """`Name.1.…`, `Name.2.…` as forms of their own."""
        found: dict[int, dict[str, str]] = {}
        for key, value in self.values.items():
            if key.startswith(name + "."):
                number, dot, rest = key[len(name) + 1 :].partition(".")
                if dot and number.isdecimal():
                    found.setdefault(int(number), {})[rest] = value
        return [Form(found[number]) for number in sorted(found)]

    def sub(self, name: str) -> Form:
        """`Name.…` as a form of its own."""
        return Form({key[len(name) + 1 :]: value for key, value in self.values.items() if key.startswith(name + ".")})

    def filters(self) -> dict[str, list[str]]:
        """Filter names with their values."""
        return {group.required("Name"): group.listed("Value") for group in self.groups("Filter")}

    def __bool__(self) -> bool:
        return bool(self.values)


def _numbered(key: str, name: str) -> bool:
    return key.startswith(name + ".") and key[len(name) + 1 :].isdecimal()


def page(form: Form, rows: Sequence[T], cap: int, *, low: int = 5, high: int = 1000) -> tuple[Sequence[T], str]:
    """The wanted part of all rows, and the token of the next: an empty string after the last (facts/cloud-api.md §1.1).

    A token is good for the request it came from and no other: who drops the parameters on the way (boto3#130) is told so.
    """
    size = min(form.number("MaxResults", low, high, cap), cap)
    paging = {"MaxResults", "NextToken", "DryRun"}
    asked = hashlib.sha256(repr(sorted((k, v) for k, v in form.values.items() if k not in paging)).encode()).hexdigest()[:12]
    begin = 0
    if token := form.text("NextToken"):
        try:
            theirs, _, offset = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
            begin = int(offset)
        except ValueError:
            raise AwsError("InvalidNextToken", "The token is not one of ours.") from None
        if theirs != asked:
            raise AwsError("InvalidNextToken", "The token belongs to a request with other parameters.")
    end = begin + size
    more = base64.urlsafe_b64encode(f"{asked}:{end}".encode()).decode() if end < len(rows) else ""
    return rows[begin:end], more


def timestamp(moment: datetime) -> str:
    """As EC2 writes instants."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def answer_xml(action: str, content: Mapping[str, Value]) -> Answer:
    """The answer to an action of EC2."""
    parts = [f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{NAMESPACE}"><requestId>{uuid.uuid4()}</requestId>']
    _write(parts, content)
    parts.append(f"</{action}Response>")
    return Answer(200, "".join(parts).encode(), {"Content-Type": "text/xml;charset=UTF-8"})


def _write(parts: list[str], content: Mapping[str, Value]) -> None:
    for name, value in content.items():
        if value is not None:
            parts.append(f"<{name}>")
            _write_value(parts, value)
            parts.append(f"</{name}>")


def _write_value(parts: list[str], value: Value) -> None:
    match value:
        case bool():
            parts.append("true" if value else "false")
        case str():
            parts.append(escape(value))
        case datetime():
            parts.append(timestamp(value))
        case Mapping():
            _write(parts, value)
        case Sequence():
            for item in value:
                parts.append("<item>")
                _write_value(parts, item)
                parts.append("</item>")
        case _:
            parts.append(str(value))


def answer_json(content: object, version: str = "1.1") -> Answer:
    """The answer of a service that speaks JSON."""
    return Answer(200, json.dumps(content).encode(), {"Content-Type": f"application/x-amz-json-{version}"})


def refusal(call: Call, error: AwsError) -> Answer:
    """An error as the service that was asked would put it."""
    request = str(uuid.uuid4())
    code, message = escape(error.code), escape(error.message)
    match call.service:
        case "ec2":
            inner = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
            text = f"<Response><Errors>{inner}</Errors><RequestID>{request}</RequestID></Response>"
        case "sts" | "iam":
            kind = "Sender" if error.status < 500 else "Receiver"
            text = (
                f"<ErrorResponse><Error><Type>{kind}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
                f"<RequestId>{request}</RequestId></ErrorResponse>"
            )
        case "s3":
            body = b"" if call.method == "HEAD" else f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            return Answer(error.status, body, {"Content-Type": "application/xml", "x-amz-request-id": request})
        case _:
            headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": error.code, "x-amzn-RequestId": request}
            return Answer(error.status, json.dumps({"__type": error.code, "message": error.message}).encode(), headers)
    return Answer(error.status, f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode(), {"Content-Type": "text/xml;charset=UTF-8"})
