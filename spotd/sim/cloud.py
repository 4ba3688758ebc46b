"""The simulated cloud's truth: machines that are made, boot, are reclaimed and end. What it says about them stands in `api`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from spotd.core.instance import EndedBy, LaunchRequest
from spotd.core.offer import Market, OfferKey
from spotd.sim.machine import Machine, Reclaim
from spotd.sim.timeline import HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotd.sim.dice import Dice
    from spotd.sim.draws import Draws
    from spotd.sim.market import Bazaar
    from spotd.sim.story import Story
    from spotd.sim.timeline import Timeline

NOTICE_S = 120.0
_MAINTENANCE_S = 1800.0


class Inhabitant(Protocol):
    """What runs on a machine."""

    def powered_on(self, machine: Machine) -> None:
        """The machine runs."""

    def warned(self, machine: Machine, reclaim: Reclaim) -> None:
        """Its metadata server shows a warning (if `reclaim.told`)."""

    def hinted(self, machine: Machine) -> None:
        """Its metadata server recommends to move; nothing is decided."""

    def shutting_down(self, machine: Machine) -> None:
        """The operating system is told to go down."""

    def gone(self, machine: Machine) -> None:
        """Nothing executes there any more."""


class Cloud:
    """Every machine that ever was, and the events that befall them."""

    def __init__(self, timeline: Timeline, dice: Dice, draws: Draws, bazaar: Bazaar, story: Story) -> None:
        self.timeline = timeline
        self.dice = dice
        self.draws = draws
        self.bazaar = bazaar
        self.story = story
        self.machines: dict[str, Machine] = {}
        #: Those that any listing may still show.
        self.recent: dict[str, Machine] = {}
        #: By (zone, token): EC2's idempotency is zonal (facts/reclaim.md §1.10).
        self.by_token: dict[tuple[str, str], Machine] = {}
        self.inhabitants: Inhabitant | None = None
        #: Told of reclaims by the provider's own channel.
        self.channel: Callable[[Machine], None] | None = None
        self.healed = False

    # Making ------------------------------------------------------------------------------------------------------------

    def create(self, request: LaunchRequest) -> Machine:
        """A machine as asked for."""
        machine = self._add(request.offer, request, ours=True)
        self.by_token[request.offer.zone, request.token] = machine
        lock_s = (request.expires_at - self.timeline.now()).total_seconds()
        self.timeline.after(max(lock_s, 0.0), lambda: self._lock(machine))
        return machine

    def create_other(self, offer: OfferKey, *, ours: bool) -> Machine:
        """A machine that this daemon has no record of: with our tag a stray, without it somebody else's."""
        return self._add(offer, None, ours=ours)

    def _add(self, offer: OfferKey, request: LaunchRequest | None, *, ours: bool) -> Machine:
        now = self.timeline.now_s
        lag = self.dice.between("visibility", 0.0, self.draws.listing_lag_s)
        machine = Machine(f"i-{len(self.machines) + 1:04d}", offer, request, ours, now, now + lag)
        self.machines[machine.provider_id] = self.recent[machine.provider_id] = machine
        if request is not None and not self.healed and self.dice.chance("dies pending", self.draws.dies_pending):
            after = self.dice.between("dies pending after", 1.0, 30.0)
            self.timeline.after(after, lambda: self.end(machine, EndedBy.NEVER_RAN, "Server.InsufficientInstanceCapacity"))
            self.story.cloud(f"accepts {machine.provider_id} in {offer.zone} and will not fill it")
            return machine
        self.timeline.after(self.dice.between("pending", 2.0, 25.0), lambda: self._run(machine))
        return machine

    def _run(self, machine: Machine) -> None:
        if machine.ended_s is not None or machine.ending_s is not None:
            return
        machine.running_s = self.timeline.now_s
        if machine.request is not None and self.inhabitants is not None:
            self.inhabitants.powered_on(machine)
            self._fate(machine)

    # Taking back ---------------------------------------------------------------------------------------------------------

    def _fate(self, machine: Machine) -> None:
        """When the provider will want this machine back, hint, or hide it: drawn from the machine's own stream."""
        stream = self.dice.stream(f"fate {machine.provider_id}")
        draws = self.draws
        if machine.offer.market is Market.SPOT:
            if stream.random() < draws.boot_reclaims:
                self.timeline.after(stream.uniform(1.0, draws.boot_s), lambda: self.take_back(machine))
            elif draws.reclaims_per_day > 0.0:
                self.timeline.after(stream.expovariate(draws.reclaims_per_day / 86400.0), lambda: self.take_back(machine))
        befalls: tuple[tuple[float, Callable[[Machine], None]], ...] = (
            (draws.hints_per_day, self._hint),
            (draws.maintenance_per_day, self._maintain),
            (draws.external_ends_per_day, self._somebody_ends),
            (draws.listing_hides_per_day, self._hide),
        )
        for rate, befall in befalls:
            if rate > 0.0:
                self.timeline.after(stream.expovariate(rate / 86400.0), partial(befall, machine))

    def take_back(self, machine: Machine, notice_s: float | None = None, *, told: bool | None = None, cancelled: bool | None = None) -> None:
        """Begin a reclaim. How it is announced is drawn unless said."""
        if not machine.alive or machine.ending_s is not None or machine.reclaim is not None or self.healed:
            return
        if machine.running_s is None:
            self.end(machine, EndedBy.NEVER_RAN, "Server.InsufficientInstanceCapacity")
            return
        dice, draws, now = self.dice, self.draws, self.timeline.now_s
        if notice_s is None:
            notice_s = dice.between("late notice", 3.0, 60.0) if dice.chance("notice late", draws.notice_late) else NOTICE_S
        if told is None:
            told = not dice.chance("notice none", draws.notice_none)
        if cancelled is None:
            cancelled = told and dice.chance("notice cancelled", draws.notice_cancelled)
        reclaim = Reclaim(now, now + (notice_s if told else 0.0), told, cancelled)
        self._announce(machine, reclaim)

    def _announce(self, machine: Machine, reclaim: Reclaim) -> None:
        machine.reclaim = reclaim
        machine.reclaims.append(reclaim)
        left = reclaim.deadline_s - self.timeline.now_s
        self.story.cloud(f"wants {machine.provider_id} back ({reclaim.kind})" + (f", notice {left:.0f} s" if reclaim.told else ", no notice"))
        if reclaim.told:
            channel = self.channel
            if channel is not None and reclaim.kind == "reclaim" and not self.dice.chance("channel loses", self.draws.channel_loses):
                self.timeline.after(self.dice.between("channel delay", 0.5, 20.0), lambda: channel(machine))
            if self.inhabitants is not None:
                self.inhabitants.warned(machine, reclaim)
        self.timeline.at(reclaim.deadline_s, lambda: self._deadline(machine, reclaim))

    def _deadline(self, machine: Machine, reclaim: Reclaim) -> None:
        if machine.reclaim is not reclaim or not machine.alive:
            return
        if reclaim.cancelled or self.healed:
            reclaim.cancelled = True
            machine.reclaim = None
            self.story.cloud(f"does not take {machine.provider_id} after all")
            return
        if machine.ending_s is not None:
            return
        by, code = (EndedBy.RECLAIM, "Server.SpotInstanceTermination")
        if reclaim.kind == "maintenance":
            by, code = (EndedBy.MAINTENANCE, "Server.ScheduledStop")
        # The operating system is told, notice or not; what it may do with that is a matter of seconds (facts/reclaim.md §1.12).
        self.shut_down(machine, by, code, self.dice.between("last seconds", 0.0, 30.0))

    def burst(self, zone: str) -> None:
        """A zone's spot machines are wanted back in the same moment."""
        for machine in list(self.machines.values()):
            if machine.ours and machine.offer.zone == zone and machine.offer.market is Market.SPOT:
                self.take_back(machine)

    def _hint(self, machine: Machine) -> None:
        if machine.up and not self.healed and self.inhabitants is not None:
            self.inhabitants.hinted(machine)

    def _maintain(self, machine: Machine) -> None:
        if machine.up and machine.reclaim is None and not self.healed:
            now = self.timeline.now_s
            self._announce(machine, Reclaim(now, now + _MAINTENANCE_S, told=True, cancelled=False, kind="maintenance"))

    def _somebody_ends(self, machine: Machine) -> None:
        if machine.alive and machine.ending_s is None and not self.healed:
            self.story.cloud(f"somebody ends {machine.provider_id} by hand")
            machine.external_s = self.timeline.now_s
            self.shut_down(machine, EndedBy.EXTERNAL, "Client.UserInitiatedShutdown", self.dice.between("external end", 1.0, 20.0))

    def _hide(self, machine: Machine) -> None:
        # A cloud whose listings lag shows its machines late; what it has accepted to end it does not lose.
        if machine.alive and machine.ending_s is None and not self.healed:
            now = self.timeline.now_s
            machine.hidden = (now, now + self.dice.between("hides for", 60.0, 2400.0))

    def _lock(self, machine: Machine) -> None:
        """The provider's own limit, asked for in the launch request."""
        if machine.alive and machine.ending_s is None:
            self.story.cloud(f"ends {machine.provider_id} at the limit it was launched with")
            self.shut_down(machine, EndedBy.UNKNOWN, "MaxRunDuration", 10.0)

    # Ending ----------------------------------------------------------------------------------------------------------------

    def shut_down(self, machine: Machine, by: EndedBy, code: str, lasts_s: float) -> None:
        """The machine goes down; it may execute until it is gone."""
        if machine.ending_s is not None or not machine.alive:
            return
        machine.ending_s, machine.ending_for = self.timeline.now_s, by
        if self.inhabitants is not None:
            self.inhabitants.shutting_down(machine)
        self.timeline.after(lasts_s, lambda: self.end(machine, by, code))

    def end(self, machine: Machine, by: EndedBy, code: str) -> None:
        """Nothing executes there any more, and it costs nothing more."""
        if not machine.alive:
            return
        now = self.timeline.now_s
        machine.ended_s, machine.ended_by, machine.end_code = now, by, code
        if machine.running_s is None and by is not EndedBy.US:
            machine.ended_by = EndedBy.NEVER_RAN
        machine.row_gone_s = now + HOUR
        machine.tags_gone_s = now + self.dice.between("tags", 600.0, HOUR)
        self.story.cloud(f"{machine.provider_id} is gone ({by}, {code})")
        if self.inhabitants is not None:
            self.inhabitants.gone(machine)

    def forget(self) -> None:
        """What ended long ago is in no listing any more, however stale."""
        past = self.timeline.now_s - 2 * HOUR
        for name in [m.provider_id for m in self.recent.values() if m.ended_s is not None and m.ended_s < past]:
            del self.recent[name]

    def heal(self) -> None:
        """No more faults: hidden machines show, reclaims that were announced are called off."""
        self.healed = True
        for machine in self.machines.values():
            if machine.hidden is not None:
                machine.hidden = (machine.hidden[0], min(machine.hidden[1], self.timeline.now_s))
