"""Draft lengths by what they bring and what they cost, both measured while decoding.

    gain of a length = tokens emitted per step / (time of a step / time of a plain step)

is the speedup itself (Cascade's utility, `theory.controllers`). Cascade measures it as a whole, length by length, a few
steps each. Here its two halves are learnt apart, because they belong to different things:

- **what a length costs** belongs to the machine and the models, and hardly changes: `StepCosts` compares the times of
  neighbouring steps of different lengths, over all requests of a session;
- **what a length brings** belongs to the text, and changes with it: `RecentAcceptance` counts which places of a draft
  were accepted, of late. A draft of any length says something about all lengths.

So a length need not be tried to be judged, and one step teaches about many lengths. Where the draft model says how
sure it is, that is learnt too (`Calibration`: of tokens proposed with so much confidence, how many were accepted),
and the end of each draft is decided token by token: it ends where the expected tokens are not worth the time.

Two things keep trying it out cheap:

- **Optimism that must be paid for.** Little evidence counts in favour of drafting, so that it is tried at first and
  again after a while. But every step is booked: what it emitted minus what it cost, in plain steps. Drafting must not
  bring the balance below zero, and it starts at `ALLOWANCE` and grows by `SHARE` of each token. So decoding is never
  slower than plain decoding by more than `SHARE` of the time and `ALLOWANCE` steps of the session, as far as the
  costs are known, whatever the text does.
- **Doubling.** No draft is longer than twice the longest one whose cost is known, and one.

What is published: utility as the quantity to decide by, and not drafting where it is below 1 (Cascade, arXiv
2506.20675, abstract read); product-limit counts of acceptance (see `theory.acceptance.position_rates`); keeping to a
fraction of a safe baseline (conservative bandits: Wu, Shariff, Lattimore & Szepesvari 2016, arXiv 1602.04282); ending
a draft where its next token is not worth the cost (EVICT, arXiv 2605.00342, second hand). How they are put together,
and all constants, are ours; `benchmarks/policies.py` is what they were chosen with.
"""

from __future__ import annotations

import itertools
import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from specmeter.engines.libllama.policies import GivenCosts, RelativeCosts, StepCosts, whole
from specmeter.theory.controllers import set_steps

ALLOWANCE = 2.0
"""Plain steps that a session may lose before anything was gained."""
SHARE = 0.007
"""What else it may lose, per token."""
MOST_BALANCE = 30.0
"""Gains that are remembered: a text that turns bad is noticed by its acceptance long before they are spent."""
LEAST_GAIN = 0.02
"""Drafting has to promise this much, or the text is decoded plainly."""

REFRESH = 128
"""Steps with drafts after which one is decoded plainly, to compare with; where the gain is below `CLEAR`, after
`REFRESH_IN_DOUBT`, which costs next to nothing there."""
REFRESH_IN_DOUBT = 32
CLEAR = 1.3
LOOK_EVERY = 8
"""Where drafting did not pay, a draft is tried again after so many plain steps; each time that it still does not pay,
after twice as many, up to `MOST_IDLE`."""
MOST_IDLE = 128
MOST_ASLEEP = 32
"""Plain steps in which nothing is decided at all, at most: deciding costs time, too."""
CATCHING_UP = 4
"""Tokens that a draft model can have missed without its next draft being noticeably dearer."""
READING = 0.02
READING_WEIGHT = 16.0
"""What a draft model takes to read a token that it missed, in plain steps, before that was seen: as if it had been seen
of so many tokens."""
MOST_SURPRISE = 3.0
"""Plain steps: whatever a single draft took beyond that and what was expected is taken for an outlier."""


class Utility:
    """Drafts as long as they are worth it, up to `longest` tokens; plain decoding where they are not.

    `use_confidence`: listen to the draft model's confidence, where it has one (`goes_on`).
    """

    def __init__(self, longest: int = 16, *, use_confidence: bool = True) -> None:
        self._longest = whole("longest", longest, least=1)
        self._costs: RelativeCosts = StepCosts(self._longest)
        self._use_confidence = use_confidence
        self._acceptance = RecentAcceptance(self._longest)
        self._calibration = Calibration()
        self._worth = Worth()
        self._balance = ALLOWANCE
        self._asked = 0
        self._confidences: list[float] = []
        self._reaches: list[float] = []
        """Of each token drafted in this step: the probability that it will be accepted."""
        self._proposed = False
        """Whether the draft model proposed anything in this step."""
        self._hears = False
        """Whether the drafter has confidences at all; lookups have none."""
        self._gain = 1.0
        """What drafting promised, the last time that it was looked at."""
        self._since_plain = 0
        """Steps since the last plain one."""
        self._missed = 0
        """Tokens since the drafter was last asked."""
        self._read, self._reading = READING_WEIGHT, READING * READING_WEIGHT
        """Tokens that it read after having missed them, and what that took in plain steps."""
        self._idle = 0
        """Plain steps since the last draft or probe that was wanted, and how many of the latter were in vain."""
        self._falls = 0
        self._asleep = 0
        """Plain steps to come before anything is decided again."""
        self._standing = 0
        """Steps to come for which the last decision stands, as long as lookups find nothing."""
        self._empty = 0
        """Steps whose lookup found nothing and that are not booked yet."""
        self._plain_steps = 0
        """Those that are not booked yet."""

    def begin(self) -> None:
        self._asleep = self._missed = 0  # drafters read the prompt of a request as the target does
        self._acceptance.begin()
        self._worth.begin()
        self._costs.begin()

    def length(self) -> int:
        if self._asleep:
            self._asleep -= 1
            return 0
        if self._standing:
            self._standing -= 1
            return self._asked
        self._settle()
        self._confidences = []
        self._reaches = []
        self._proposed = False
        self._asked = self._chosen() if self._costs.ready else 0
        return self._asked

    def goes_on(self, confidence: Callable[[], float], entropy: Callable[[], float]) -> bool:  # noqa: ARG002
        self._hears = self._proposed = True
        if not self._use_confidence:
            return True
        sure = confidence()
        chance = self._calibration.chance(sure)
        reach = (self._reaches[-1] if self._reaches else 1.0) * chance
        if not self._worthwhile(len(self._reaches), reach):
            return False
        self._confidences.append(sure)
        self._reaches.append(reach)
        return True

    def observe(self, drafted: int, accepted: int, step_ms: float) -> None:
        drafted = min(drafted, self._longest)
        if not drafted and not self._proposed and self._hears:
            self._asked = 0  # the engine had no room for a draft, so the draft model was not asked
        if not self._asked:
            # Nothing is decided in a row of plain steps, so it is dealt with at its end: such steps may be short.
            self._costs.observe(0, 0, step_ms)
            self._plain_steps += 1
            return
        if not drafted and not self._hears:
            # A lookup that found nothing leaves a plain step, and changes no mind.
            self._costs.observe(0, 0, step_ms)
            if not self._empty:
                self._standing = LOOK_EVERY - 1
            self._empty += 1
            return
        self._standing = 0
        self._settle_empty()
        if self._returns and drafted <= self._costs.longest_known:
            paid = self._returned(drafted, step_ms)
        else:
            self._costs.observe(self._asked if self._hears else drafted, drafted, step_ms)
            paid = self._known_cost(drafted)
        self._missed = 0
        self._since_plain += 1
        self._book(drafted, accepted, paid)
        self._acceptance.observe(drafted, accepted)
        for place, confidence in enumerate(self._confidences[: min(drafted, accepted + 1)]):
            self._calibration.observe(confidence, place < accepted)

    # --- before a step -----------------------------------------------------------------------------------------------

    def _chosen(self) -> int:
        costs = self._costs.hoped()
        known = self._costs.longest_known
        limit = known if self._returns and known else min(self._longest, 2 * known + 1)
        affordable = self._balance + 1 - self._to_read()
        while limit and costs[limit] > affordable:
            limit -= 1
        if not limit:
            self._sleep((costs[1] - affordable) / SHARE)
            return 0
        if self._use_confidence and self._hears:
            length, self._gain = limit, self._worth.gain()
        else:
            length, self._gain = self._best(costs)
            length = min(length, limit)
        # Steps without a draft are neither better nor worse than plain ones: the promise is asked of the others.
        if self._gain < 1 + LEAST_GAIN * self._acceptance.found:
            return limit if self._probes() else 0
        self._falls = self._idle = 0
        if self._since_plain >= (REFRESH if self._gain > CLEAR else REFRESH_IN_DOUBT):
            return 0
        return length

    @property
    def _returns(self) -> bool:
        """Whether the draft model has to read what it missed first. That is the price of a draft, not of its length."""
        return self._hears and self._missed > CATCHING_UP

    def _to_read(self) -> float:
        """What that will take, in plain steps."""
        return self._missed * self._reading / self._read if self._returns else 0.0

    def _probes(self) -> bool:
        """Whether to look again although nothing is promised: ever more rarely, as Cascade's test phases are."""
        wait = set_steps(self._falls, first=LOOK_EVERY, most=MOST_IDLE) - self._idle
        if wait > 0:
            self._sleep(wait)
            return False
        self._idle = 0
        self._falls += 1
        return True

    def _sleep(self, steps: float) -> None:
        """Decide nothing in this plain step and those after it: about `steps`, within bounds."""
        self._asleep = math.ceil(min(max(steps, LOOK_EVERY), MOST_ASLEEP)) - 1

    def _best(self, curve: list[float]) -> tuple[int, float]:
        """The length with the highest gain, and that gain; drafts that are not found cost and bring a plain step."""
        found, missing = self._acceptance.found, 1 - self._acceptance.found
        missing_cost = missing * self._empty_cost()
        best, best_gain, tokens, reach = 0, 0.0, 1.0, 1.0
        for place, chance in enumerate(self._acceptance.chances()):
            reach *= chance
            tokens += reach
            gain = (missing + found * tokens) / (missing_cost + found * curve[place + 1])
            if gain > best_gain:
                best, best_gain = place + 1, gain
        return best, best_gain

    def _empty_cost(self) -> float:
        """Looking up costs next to nothing, so a step that found nothing is a plain one."""
        return self._costs.empty() if self._hears else 1.0

    # --- while drafting ----------------------------------------------------------------------------------------------

    def _worthwhile(self, drafted: int, reach: float) -> bool:
        """Whether verifying one more token, and perhaps some after it, brings more than it costs.

        The token would be accepted with probability `reach`; those after it are taken to be like the last one before
        them on the whole. What a unit of time is worth is the gain that drafting has of late, or 1.
        """
        curve = self._costs.hoped()
        price = max(1.0, self._gain)
        value, chance = 0.0, self._acceptance.overall()
        for length in range(drafted + 1, self._asked + 1):
            value += reach
            if value >= price * (curve[length] - curve[drafted]):
                return True
            reach *= chance
        return False

    # --- after a step ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Book the plain steps since the last time."""
        self._settle_empty()
        steps, self._plain_steps = self._plain_steps, 0
        if not steps or not self._costs.ready:
            return
        self._balance = min(self._balance + SHARE * steps, MOST_BALANCE)
        self._since_plain = 0
        self._missed += steps
        self._idle += steps
        self._worth.plain(steps)
        self._acceptance.plain(steps)

    def _settle_empty(self) -> None:
        """Book the steps whose lookup found nothing: each cost a plain step and brought its token."""
        steps, self._empty = self._empty, 0
        if not steps:
            return
        self._balance = min(self._balance + SHARE * steps, MOST_BALANCE)
        self._since_plain = 0
        self._worth.empty(steps)
        self._acceptance.empty(steps)

    def _known_cost(self, drafted: int) -> float:
        return self._costs.expected()[drafted] if drafted else self._empty_cost()

    def _returned(self, drafted: int, step_ms: float) -> float:
        """What a step took whose drafter had to read first, in plain steps; what reading takes is learnt from it."""
        cost = self._known_cost(drafted)
        reading = min(max(self._costs.relative(step_ms) - cost, 0.0), self._to_read() + MOST_SURPRISE)
        self._read += self._missed
        self._reading += reading
        return cost + reading

    def _book(self, drafted: int, accepted: int, cost: float) -> None:
        """A step that asked for a draft and took `cost` plain steps."""
        self._balance = min(self._balance + (1 + SHARE) * (accepted + 1) - cost, MOST_BALANCE)
        reaches: Iterable[float] = self._reaches[:drafted]
        if drafted and not self._proposed:  # a lookup
            reaches = itertools.accumulate(self._acceptance.chances()[:drafted], operator.mul)
        self._worth.observe(1 + sum(reaches), cost)


class CostTable(Utility):
    """The same choice where costs are known beforehand: `costs_ms` for 0, 1, ..., `longest` drafted tokens.

    Acceptance is counted as ever; confidence is not listened to.
    """

    def __init__(self, costs_ms: Sequence[float], longest: int = 16) -> None:
        super().__init__(longest, use_confidence=False)
        self._costs = GivenCosts(costs_ms, self._longest)


# --- what recent steps say about the drafts to come ------------------------------------------------------------------


class RecentAcceptance:
    """Conditional acceptance by place, from recent steps.

    a_i = (accepted at i + W a) / (tried at i + W), where a is the same of all places together, with `PRIOR` in place
    of `WEIGHT` tries: places that were hardly tried are like the others, and a text of which nothing is known is
    worth a try. Counts fade with every draft, slowly with every token, and by half when a new text begins.
    """

    PRIOR = 0.75
    WEIGHT = 2.0
    _PLACE_WEIGHT = 10.0
    _PER_STEP = 0.97
    _PER_TOKEN = 0.996

    def __init__(self, longest: int) -> None:
        self._tried = [0.0] * longest
        self._accepted = [0.0] * longest
        self._all_tried = self._all_accepted = 0.0
        self._unit = 1.0
        """What one try counts now: instead of making all that went before smaller, later tries count more."""
        self._asked = self._found = 1.0

    def begin(self) -> None:
        self._unit *= 2

    def plain(self, steps: int) -> None:
        """So many plain steps."""
        self._unit /= self._PER_TOKEN**steps
        if self._unit > 1e9:
            self._shrink()

    def empty(self, steps: int) -> None:
        """So many steps for which a draft was wanted and none was found."""
        kept = self._PER_STEP**steps
        self._asked = self._asked * kept + (1 - kept) / (1 - self._PER_STEP)
        self._found *= kept
        self.plain(steps)

    def observe(self, drafted: int, accepted: int) -> None:
        """A step for which a draft was wanted: how long it was (0: none was found), how much of it was accepted."""
        self._unit /= self._PER_TOKEN ** (accepted + 1)
        self._asked = self._asked * self._PER_STEP + 1
        self._found = self._found * self._PER_STEP + (drafted > 0)
        if not drafted:
            return
        self._unit /= self._PER_STEP
        if self._unit > 1e9:
            self._shrink()
        reached = min(drafted, accepted + 1, len(self._tried))
        for place in range(reached):
            self._tried[place] += self._unit
        for place in range(min(accepted, reached)):
            self._accepted[place] += self._unit
        self._all_tried += reached * self._unit
        self._all_accepted += min(accepted, reached) * self._unit

    @property
    def found(self) -> float:
        """Of the steps that asked for a draft, how many got one."""
        return self._found / self._asked

    def overall(self) -> float:
        """Of all places together."""
        prior = self.WEIGHT * self._unit
        return (self._all_accepted + self.PRIOR * prior) / (self._all_tried + prior)

    def chances(self) -> list[float]:
        """a_1, a_2, ..., a_longest."""
        weight = self._PLACE_WEIGHT * self._unit
        like_others = self.overall() * weight
        pairs = zip(self._accepted, self._tried, strict=True)
        return [(accepted + like_others) / (tried + weight) for accepted, tried in pairs]

    def _shrink(self) -> None:
        self._tried = [value / self._unit for value in self._tried]
        self._accepted = [value / self._unit for value in self._accepted]
        self._all_tried /= self._unit
        self._all_accepted /= self._unit
        self._unit = 1.0


class Calibration:
    """Of the tokens that were proposed with a confidence, how many were accepted, all before them being accepted.

    Counts by bins of confidence, each starting as if it were worth its face value `_WEIGHT` times. It belongs to the
    pair of models rather than to the text, so it is kept over requests and fades slowly.
    """

    _EDGES = (0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.92, 0.96, 0.985)
    _WEIGHT = 3.0
    _KEPT = 0.99

    def __init__(self) -> None:
        edges = (0.0, *self._EDGES, 1.0)
        self._tried = [self._WEIGHT] * (len(edges) - 1)
        self._accepted = [self._WEIGHT * (low + high) / 2 for low, high in itertools.pairwise(edges)]

    def chance(self, confidence: float) -> float:
        place = bisect_right(self._EDGES, confidence)
        return self._accepted[place] / self._tried[place]

    def observe(self, confidence: float, accepted: bool) -> None:
        place = bisect_right(self._EDGES, confidence)
        self._tried[place] = self._tried[place] * self._KEPT + 1
        self._accepted[place] = self._accepted[place] * self._KEPT + accepted


class Worth:
    """Expected gain of steps that draft, of late: tokens over cost, fading towards a little optimism."""

    _OPTIMISM = 1.25
    _WEIGHT = 1.5
    _PER_STEP = 0.95
    _PER_TOKEN = 0.992

    def __init__(self) -> None:
        self._tokens = self._cost = 0.0

    def begin(self) -> None:
        self._fade(0.5)

    def observe(self, tokens: float, cost: float) -> None:
        self._fade(self._PER_STEP)
        self._tokens += tokens
        self._cost += cost

    def plain(self, steps: int) -> None:
        """So many plain steps."""
        self._fade(self._PER_TOKEN**steps)

    def empty(self, steps: int) -> None:
        """So many steps that wanted a draft and found none: a token each, for the cost of a plain step."""
        kept = self._PER_STEP**steps
        self._fade(kept)
        self._tokens += (1 - kept) / (1 - self._PER_STEP)
        self._cost += (1 - kept) / (1 - self._PER_STEP)

    def gain(self) -> float:
        return (self._tokens + self._OPTIMISM * self._WEIGHT) / (self._cost + self._WEIGHT)

    def _fade(self, factor: float) -> None:
        self._tokens *= factor
        self._cost *= factor
