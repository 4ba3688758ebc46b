"""Reclaim warnings from EventBridge, by one SQS queue in each region (facts/reclaim.md §1.5, §1.7), and what the listing finds of the same kind.

Each region is asked by a thread of its own, so that a long poll in one delays nobody; a region that cannot be asked degrades alone. A message is
deleted when every notice in it was acknowledged, and only then; until then its queue delivers it again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from spotd.core.errors import Misconfigured, NotAuthorized, ProviderError, ProviderUnavailable, Throttled
from spotd.ports import DeliveredNotice
from spotd_aws.errors import reads
from spotd_aws.events import Verdict, read_message
from spotd_aws.mailbox import Key, Mailbox, Slip, Subject
from spotd_aws.wiring import queue_name

if TYPE_CHECKING:
    from spotd.core.notice import Notice
    from spotd_aws.clients import Clients
    from spotd_aws.config import AwsConfig

#: Both are in use for a queue that is not there, the first in the older protocol.
NO_QUEUE = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
#: How long `notices` waits, and how soon it sees that it is to stop.
_WAIT_S, _GLANCE_S = 20.0, 0.2
#: A region is asked on for so long after somebody last listened: what nobody listens for is better left in the queue.
_GRACE_S = 2.0
_BATCH = 10
#: A canary that nobody took by then is nobody's any more.
_CANARY_LIVES = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon something is tried again, in seconds."""

    #: A region without queue or permission: that takes a person.
    rarely: float = 300.0
    #: A region that does not answer: twice as long each time.
    first: float = 5.0
    longest: float = 60.0
    #: So long `spotd aws setup` is left alone with its canary.
    aside: float = 3.0


@dataclass(slots=True)
class _Trouble:
    error: ProviderError
    told: bool = False


class Warnings:
    """The provider's own notice channel. May be used by several threads; all that it starts ends with `close`, and rests while nobody listens."""

    def __init__(
        self,
        clients: Clients,
        config: AwsConfig,
        deployment: str,
        regions: Callable[[], Sequence[str]],
        *,
        pace: Pace | None = None,
    ) -> None:
        self._clients = clients
        self._config = config
        self._name = queue_name(deployment)
        self._regions = regions
        self._pace = pace or Pace()
        #: Guards everything below, and is notified whenever some of it changes.
        self._door = threading.Condition()
        self._mail = Mailbox()
        self._troubles: dict[str, _Trouble] = {}
        self._deletable: list[Slip] = []
        self._counted: Counter[Verdict] = Counter()
        self._listeners = 0
        self._listened_at = float("-inf")
        self._threads: dict[str, threading.Thread] = {}
        self._closed = threading.Event()

    @property
    def counted(self) -> Mapping[Verdict, int]:
        """How many messages there were of each kind."""
        with self._door:
            return dict(self._counted)

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        """Wait for notices, 20 s at most, less once `stop` is set. A ProviderError when something has changed for the worse: once per change."""
        if self._config.queue and not stop.is_set():
            self._start()
        end = time.monotonic() + _WAIT_S
        with self._door:
            self._listeners += 1
            self._door.notify_all()
            try:
                while True:
                    if taken := self._mail.take(time.monotonic()):
                        return [self._delivered(*one) for one in taken]
                    if error := self._news():
                        raise error
                    left = end - time.monotonic()
                    if left <= 0 or stop.is_set() or self._closed.is_set():
                        return []
                    self._door.wait(min(_GLANCE_S, left))
            finally:
                self._listeners -= 1
                self._listened_at = float("-inf") if stop.is_set() else time.monotonic()

    def saw(self, provider_id: str, notice: Notice) -> None:
        """The listing shows a notice, in a spot request's status: it is delivered once, and again until it is acknowledged."""
        with self._door:
            if self._mail.saw(provider_id, notice, time.monotonic()):
                self._door.notify_all()

    def close(self) -> None:
        """Stop. What was acknowledged is still deleted, if that can be done in a moment; long polls are left to end by themselves."""
        self._closed.set()
        with self._door:
            self._door.notify_all()
            deleter = self._threads.get(_DELETER)
        if deleter is not None and deleter is not threading.current_thread():
            deleter.join(timeout=3.0)

    # What is handed out

    def _delivered(self, key: Key, subject: Subject, notice: Notice) -> DeliveredNotice:
        return DeliveredNotice(subject.provider_id, notice, partial(self._acknowledge, key, subject))

    def _acknowledge(self, key: Key, subject: Subject) -> None:
        """Deleted by another thread: two hundred warnings at once must not wait for two hundred deletions (facts/known-faults.md A 19)."""
        with self._door:
            slip = self._mail.acknowledge(key, subject)
            if slip is not None:
                self._deletable.append(slip)
                self._door.notify_all()

    def _news(self) -> ProviderError | None:
        """What has gone wrong since it was last told, as one error; None if nothing has."""
        fresh = [trouble for trouble in self._troubles.values() if not trouble.told]
        if not fresh:
            return None
        for trouble in fresh:
            trouble.told = True
        missing = sorted(region for region, trouble in self._troubles.items() if trouble in fresh and trouble.error.code in NO_QUEUE)
        others = [trouble.error for trouble in fresh if trouble.error.code not in NO_QUEUE]
        said = [error.message for error in others]
        if missing:
            said.insert(0, f"no queue {self._name} in {', '.join(missing)}: reclaim warnings there come from the agents alone; run `spotd aws setup`")
        sentence = "; ".join(dict.fromkeys(said))
        if not others:
            return Misconfigured(sentence, fresh[0].error.code)
        if all(isinstance(error, NotAuthorized) for error in others):
            return NotAuthorized(sentence, others[0].code)
        return ProviderUnavailable(sentence, others[0].code)

    # Threads

    def _start(self) -> None:
        with self._door:
            if not self._threads and not self._closed.is_set():
                self._run(_DELETER, self._delete_on)
                self._run(_RECRUITER, self._recruit)

    def _run(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"aws-{name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _recruit(self) -> None:
        """Give every region its thread; also those that are enabled later."""
        while not self._closed.is_set():
            pause = self._pace.rarely
            try:
                regions = self._regions()
            except Exception as error:  # noqa: BLE001 - it is told, and tried again
                self._troubled("", error, failures=2)
                pause = self._pace.longest
            else:
                self._well("")
                with self._door:
                    for region in regions:
                        if region not in self._threads and not self._closed.is_set():
                            self._run(region, partial(self._watch, region))
            self._closed.wait(pause)

    def _watch(self, region: str) -> None:
        """Ask one region for as long as somebody listens."""
        failures = 0
        url = ""
        while self._somebody_listens():
            try:
                with reads("waiting for reclaim warnings", region):
                    url = url or self._url(region)
                    pause = self._ask(region, url)
            except Exception as error:  # noqa: BLE001 - it is told, and tried again; a surprise in one message must not end the watching
                url = ""
                failures += 1
                pause = self._troubled(region, error, failures=failures)
            else:
                failures = 0
                self._well(region)
            self._closed.wait(pause)

    def _somebody_listens(self) -> bool:
        """Waits until it is true; false once closed."""
        with self._door:
            while not self._closed.is_set():
                if self._listened():
                    return True
                self._door.wait()
        return False

    def _listened(self) -> bool:
        """Whether somebody listens, or is about to again."""
        with self._door:
            return not self._closed.is_set() and (self._listeners > 0 or time.monotonic() - self._listened_at < _GRACE_S)

    def _url(self, region: str) -> str:
        url = self._client(region).get_queue_url(QueueName=self._name).get("QueueUrl")
        if not isinstance(url, str) or not url:
            raise ProviderUnavailable(f"the answer about queue {self._name} in {region} has no address")
        return url

    def _client(self, region: str) -> Any:
        return self._clients.get("sqs", region, read_timeout_s=self._config.queue_wait + 10)

    def _ask(self, region: str, url: str) -> float:
        """One question; how long to wait before the next."""
        begun = time.monotonic()
        wait, client = self._config.queue_wait, self._client(region)
        answer = client.receive_message(QueueUrl=url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=int(wait))
        messages = [m for m in answer.get("Messages") or [] if m.get("MessageId") and m.get("ReceiptHandle")]
        if not self._listened():
            # Whoever listened has gone while we waited: what came is for the next one, at once.
            _put_back(client, url, messages)
            return 0.0
        now = _time_of(answer)
        canaries = [m for m in messages if not self._sort(region, url, m, now)]
        if canaries:
            # For whoever sent it: `spotd aws setup` waits for it beside us.
            _put_back(client, url, canaries)
            return self._pace.aside
        # Where an empty answer comes before its time (no long poll for less than a second), questions keep their distance all the same.
        return 0.0 if messages else max(0.0, min(1.0, wait - (time.monotonic() - begun)))

    def _sort(self, region: str, url: str, message: Mapping[str, Any], now: datetime) -> bool:
        """Deal with one message, whatever the others are. False: it is a canary that somebody waits for."""
        slip = Slip(Key(region, str(message["MessageId"])), url, str(message["ReceiptHandle"]))
        read = read_message(str(message.get("Body", "")), now)
        with self._door:
            self._counted[read.verdict] += 1
            match read.verdict:
                case Verdict.NOTICE:
                    again = self._mail.deliver(slip, read.notices, time.monotonic())
                    if again is not None:
                        self._deletable.append(again)
                case Verdict.CANARY if read.at is not None and now - read.at < _CANARY_LIVES:
                    return False
                case _:
                    # Foreign, stale, garbage: left alone they would come back until they die of age (facts/reclaim.md §0.10).
                    self._deletable.append(slip)
            self._door.notify_all()
        return True

    # Trouble

    def _troubled(self, region: str, error: Exception, *, failures: int) -> float:
        """Keep it to be told, if it is new; how long to wait before the next try."""
        if not isinstance(error, ProviderError):
            error = ProviderUnavailable(f"unexpected {type(error).__name__} while waiting for reclaim warnings in {region or 'all regions'}")
        passing = isinstance(error, ProviderUnavailable | Throttled) and error.code not in NO_QUEUE
        with self._door:
            known = self._troubles.get(region)
            news = known is None or (known.error.kind, known.error.code) != (error.kind, error.code)
            # One question that got lost is no trouble; two in a row are.
            if news and not self._closed.is_set() and (failures > 1 or not passing):
                self._troubles[region] = _Trouble(error)
                self._door.notify_all()
        return min(self._pace.longest, self._pace.first * 2 ** (failures - 1)) if passing else self._pace.rarely

    def _well(self, region: str) -> None:
        with self._door:
            self._troubles.pop(region, None)

    # Deleting

    def _delete_on(self) -> None:
        while True:
            with self._door:
                while not self._deletable and not self._closed.is_set():
                    self._door.wait()
                slips, self._deletable = self._deletable, []
            if not slips:
                return
            for (region, url), batch in _batches(slips):
                try:
                    gone = self._delete(region, url, batch)
                except Exception:  # noqa: BLE001, S112 - the queue delivers them again, and then they are deleted
                    continue
                with self._door:
                    for key in gone:
                        self._mail.deleted(key)

    def _delete(self, region: str, url: str, batch: Sequence[Slip]) -> list[Key]:
        """Which of them are gone: each is answered for by itself."""
        entries = [{"Id": str(number), "ReceiptHandle": slip.receipt} for number, slip in enumerate(batch)]
        answer = self._client(region).delete_message_batch(QueueUrl=url, Entries=entries)
        done = {row.get("Id") for row in answer.get("Successful") or []}
        return [slip.key for number, slip in enumerate(batch) if str(number) in done]


#: Names of threads that belong to no region.
_DELETER, _RECRUITER = "delete", "regions"


def _batches(slips: Iterable[Slip]) -> Iterable[tuple[tuple[str, str], list[Slip]]]:
    """By queue, ten at most, and none twice: two entries for one message would be an error of the whole batch's making."""
    queues: dict[tuple[str, str], dict[Key, Slip]] = {}
    for slip in slips:
        queues.setdefault((slip.key.region, slip.queue_url), {})[slip.key] = slip
    for queue, by_key in queues.items():
        rows = list(by_key.values())
        for first in range(0, len(rows), _BATCH):
            yield queue, rows[first : first + _BATCH]


def _put_back(client: Any, url: str, messages: Sequence[Mapping[str, Any]]) -> None:
    """Let messages be seen again at once. Where that cannot be done they come back by themselves, a little later."""
    if messages:
        entries = [{"Id": str(number), "ReceiptHandle": m["ReceiptHandle"], "VisibilityTimeout": 0} for number, m in enumerate(messages)]
        with contextlib.suppress(Exception):
            client.change_message_visibility_batch(QueueUrl=url, Entries=entries)


def _time_of(answer: Mapping[str, Any]) -> datetime:
    """AWS's time, by the answer's own date: this host's clock may be wrong, and every warning would look stale."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date).astimezone(UTC)
    except (TypeError, ValueError):
        return datetime.now(UTC)
