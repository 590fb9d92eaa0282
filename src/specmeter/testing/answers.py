"""Conformance cases on what an engine says: who it is, what it counts, and that text, tokens and times agree.

All of them but two share one session, which they leave as they found it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from itertools import pairwise
from pathlib import Path

from specmeter.errors import EngineStartError, ModelError
from specmeter.numbers import rates
from specmeter.record import Reply
from specmeter.testing.subject import (
    NotApplicable,
    NotMet,
    Subject,
    alike,
    alive,
    demand,
    greedy,
    needs,
    prompt,
    refused,
)

SCRIPTS = (
    "水闸为什么",
    "Größe, naïveté, Ωμέγα, Привет",
    "emoji 👩🏽‍🚀 🇫🇷 and 🙂",
    "right to left: \u202e abc \u202c שלום",
    "combined: e\u0301, ﬁ, \U0001d54f",
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_REFORMS = 8


def identity_is_stable(subject: Subject) -> None:
    """An engine names itself the same way every time, and its checksums are those of the files it names.

    A run is resumed only on the engine that it began on, which is told by these.
    """
    identity = subject.engine.identify()
    demand(identity.kind and identity.version, "kind or version is empty")
    demand(identity.traits is not None, "it keeps no traits")
    for name, digest in {identity.binary: identity.binary_sha256, **identity.libraries}.items():
        if "identity" not in subject.tells:
            break
        demand(_SHA256.fullmatch(digest), f"{name}: {digest[:80]!r} is not a SHA-256")
    if (binary := Path(identity.binary)).is_file():
        real = hashlib.sha256(binary.read_bytes()).hexdigest()
        demand(real == identity.binary_sha256, f"{binary} has SHA-256 {real}, not {identity.binary_sha256}")
    demand(subject.engine.identify() == identity, "the second identity differs from the first")


def a_session_says_what_it_is(subject: Subject) -> None:
    """A session that has started is ready: it names what was started, its processes live, and its facts are JSON.

    They continue record with every session, and telemetry watches the processes.
    """
    facts = subject.session.facts
    demand(facts.argv, "argv is empty")
    demand(0 < facts.ready_ms < math.inf, f"ready_ms is {facts.ready_ms}")
    demand(facts.in_flight >= 1, f"in_flight is {facts.in_flight}")
    demand(len(alive(facts.pids)) == len(facts.pids), f"of the processes {facts.pids}, {alive(facts.pids)} live")
    try:
        json.dumps(facts.resolved)
    except (TypeError, ValueError) as error:
        raise NotMet(f"resolved is not JSON: {error}") from None


def a_damaged_model_is_refused(subject: Subject) -> None:
    """A model file that ends early does not start: `EngineStartError` or `ModelError`, with a fix.

    Anything else would end in requests that fail one by one, or in a traceback.
    """
    path = Path(subject.target.path)
    if not path.is_file():
        raise NotApplicable("the target is not a file here")
    with path.open("rb") as file:
        (broken := subject.folder / f"broken{path.suffix}").write_bytes(file.read(1000))
    try:
        subject.start(target=subject.target.model_copy(update={"path": str(broken)})).close()
    except (EngineStartError, ModelError) as error:
        demand(error.message and error.fix, "the error has no message or no fix")
    else:
        raise NotMet("it started")


@needs("tokens")
def counts_are_exact(subject: Subject) -> None:
    """With `ignore_eos`, exactly `max_tokens` are generated, counted and listed, for the prompt's tokens as they are.

    Rates are counts over times; `Prompt.max_tokens` overrides the experiment's.
    """
    session = subject.session
    tokens = len(session.prompt_tokens(prompt()))
    for wanted, own in ((1, None), (7, None), (32, None), (32, 5)):
        reply = session.generate(prompt().model_copy(update={"max_tokens": own}), greedy(wanted))
        timings, expected = reply.timings, own or wanted
        counts = {"predicted_n": timings.predicted_n, "token_ids": len(reply.token_ids)}
        demand(set(counts.values()) == {expected}, f"{expected} tokens were asked for: {counts}")
        demand(reply.stop_reason == "limit", f"stop_reason is {reply.stop_reason!r} at the limit")
        read = timings.prompt_n + timings.cache_n
        demand(read == tokens, f"prompt_n + cache_n is {read}, and the prompt has {tokens} tokens")


def the_end_is_obeyed(subject: Subject) -> None:
    """Without `ignore_eos` there may be fewer tokens, never more, and then the stop reason is not `limit`."""
    reply = subject.session.generate(prompt(), greedy(64, ignore_eos=False))
    count = reply.timings.predicted_n
    demand(1 <= count <= 64, f"{count} of at most 64 tokens")
    demand((count == 64) == (reply.stop_reason == "limit"), f"{count} of 64 tokens, stopped by {reply.stop_reason!r}")


def times_lie_within_the_request(subject: Subject) -> None:
    """Times are finite and not negative, tokens arrive in order, and nothing takes longer than the client waited."""
    reply = subject.session.generate(prompt(), greedy(32))
    wall, timings = reply.wall_ms, reply.timings
    spent = timings.prompt_ms + timings.predicted_ms
    demand(all(0 <= it < math.inf for it in (wall, timings.prompt_ms, timings.predicted_ms)), f"impossible: {timings}")
    demand(spent <= wall * 1.02 + 20, f"the engine claims {spent:.1f} ms of the {wall:.1f} ms that passed")
    arrivals = reply.arrival_ms
    demand(len(arrivals) in (0, 32), f"{len(arrivals)} arrival times for 32 tokens")
    demand(all(a <= b for a, b in pairwise((0.0, *arrivals, wall))), f"arrival times out of order: {arrivals}")
    demand(reply.ttft_ms is None or 0 <= reply.ttft_ms <= wall, f"ttft_ms {reply.ttft_ms} of {wall}")


@needs("tokens")
def text_is_that_of_its_tokens(subject: Subject) -> None:
    """The text is the detokenized ids, but for a character that the last token leaves unfinished.

    Texts are compared for losslessness, tokens are counted for speed: both must be of the same generation.
    """
    session = subject.session
    for text in (prompt().text, SCRIPTS[0]):
        reply = session.generate(prompt(text), greedy(48))
        if -1 in reply.token_ids:
            continue  # ids that the engine never sent
        said = session.detokenize(reply.token_ids)
        whole = reply.text.rstrip("\ufffd")
        demand(said.startswith(whole) and len(said) - len(whole) <= 4, f"{said!r} is not {reply.text!r}")


@needs("tokens")
def tokens_come_back_as_text(subject: Subject) -> None:
    """Any text survives tokenizing and detokenizing, whatever its script: prompts of exact lengths are made so.

    A space in front, which some tokenizers add, is forgiven.
    """
    for text in (prompt().text, *SCRIPTS):
        back = subject.session.detokenize(subject.session.tokenize(text))
        demand(back.removeprefix(" ") == text, f"{text!a} came back as {back!a}")


def any_script_is_answered(subject: Subject) -> None:
    """Prompts in any script are answered, with text that is valid Unicode: characters span tokens and stream events."""
    for text in SCRIPTS:
        reply = subject.session.generate(prompt(text), greedy(24))
        demand(reply.timings.predicted_n == 24, f"{text!a}: {reply.timings.predicted_n} tokens, not 24")
        try:
            reply.text.encode()
        except UnicodeEncodeError as error:
            raise NotMet(f"{text!a}: the reply is not valid Unicode: {error}") from None


def what_is_not_unicode_is_refused(subject: Subject) -> None:
    """A lone surrogate, which no encoding can say, is refused in words of ours, and the session continues."""
    refused(subject.session, "a \ud800 b", "a lone surrogate")


@needs("tokens")
def long_prompts_have_a_limit(subject: Subject) -> None:
    """A prompt beyond the context is refused, never cut; one that just fits, with its answer, is answered.

    A prompt that is cut silently makes a request faster, and its text another one.
    """
    session, room, wanted = subject.session, subject.room, 8
    words, count = 1, 0
    refused(session, "word " * (2 * room), f"a prompt of about {2 * room} tokens in a context of {room}")
    for _ in range(_MAX_REFORMS):
        count = len(session.prompt_tokens(prompt("word " * words)))
        if 0 <= (spare := room - wanted - count) < 4:
            break
        words += max(1, spare * words // count) if spare > 0 else -max(1, -spare * words // count)
    demand(0 < count <= room - wanted, f"no text of {room - wanted} tokens was found ({words} words: {count})")
    reply = session.generate(prompt("word " * words), greedy(wanted))
    read = reply.timings.prompt_n + reply.timings.cache_n
    demand(read == count, f"{read} of {count} tokens of the prompt were read")
    demand(reply.timings.predicted_n == wanted, f"{reply.timings.predicted_n} tokens where {wanted} had room")


def greedy_decoding_repeats(subject: Subject) -> None:
    """Greedy decoding says the same every time: checks of losslessness rest on it. For engines that claim it."""
    if not subject.greedy_repeats:
        raise NotApplicable("the engine does not claim it (Subject.greedy_repeats)")
    one, other = (subject.session.generate(prompt(), greedy(48)) for _ in range(2))
    demand(one.token_ids == other.token_ids and one.text == other.text, f"{one.text!a}, then {other.text!a}")


@needs("tokens", "candidates")
def candidates_begin_with_what_is_said(subject: Subject) -> None:
    """The likeliest candidate is the token that greedy decoding says; probabilities fall and sum to one at most.

    They decide whether two texts part at a near tie or by an error.
    """
    session = subject.session
    said = session.generate(prompt(), greedy(8)).token_ids
    for place in (0, 3):
        found = session.candidates(prompt(), said[:place], greedy(8), 5)
        demand(1 <= len(found) <= 5, f"{len(found)} candidates of at most 5")
        demand(found[0].token == said[place], f"place {place}: said {said[place]}, likeliest is {found[0].token}")
        logs = [it.logprob for it in found]
        demand(logs == sorted(logs, reverse=True), f"not in order: {logs}")
        demand(math.fsum(map(math.exp, logs)) <= 1.001, f"sum to more than one: {logs}")


def _drafted(subject: Subject) -> tuple[Reply, Reply, Reply]:
    """(plain, speculative, speculative with one token) replies to the same prompt."""
    if subject.drafting is None:
        raise NotApplicable("the engine has no speculative decoding (Subject.drafting)")
    plain = subject.session.generate(prompt(), greedy(64))
    with subject.start(subject.drafting) as session:
        demand(session.facts.speculating is not False, "facts.speculating is false")
        return plain, session.generate(prompt(), greedy(64)), session.generate(prompt(), greedy(1))


@needs("drafts", "forwards")
def drafts_are_conserved(subject: Subject) -> None:
    """Every token is the first, an accepted draft token, or one that a target forward emits on its own:

    predicted_n - 1 = accepted + forwards, drafts and acceptances of all steps add up to the counters, and
    1 <= tau <= gamma + 1. A failed verification, a broken counter or a window that is off breaks it.
    """
    _, reply, single = _drafted(subject)
    timings, steps = reply.timings, reply.steps
    drafted, accepted = timings.draft_n, timings.draft_n_accepted
    if drafted is None or accepted is None:
        raise NotApplicable("the engine does not count what it drafts (Timings.draft_n)")
    demand(drafted > 0, "nothing was drafted")
    demand(accepted <= drafted, f"{accepted} of {drafted} accepted")
    decoded = timings.predicted_n - 1
    if steps:
        sums = sum(step.drafted for step in steps), sum(step.accepted for step in steps)
        counted = drafted, accepted
        demand(sums == counted, f"(drafted, accepted) is {sums} in the steps and {counted} in the counters")
        demand(all(step.accepted <= step.drafted for step in steps), "a step accepts more than it drafted")
        demand(all(a.at_ms <= b.at_ms for a, b in pairwise(steps)), "steps go back in time")
    forwards = rates.target_forwards(timings, steps)
    demand(forwards, "no forward pass of the target is left")
    if "n_decode_total" in reply.counters:
        forwards = round(reply.counters["n_decode_total"] - single.counters["n_decode_total"])
    law = f"{decoded} tokens after the first, {accepted} accepted, {forwards} forward passes"
    demand(decoded == accepted + (forwards or 0), law)
    tau, gamma = rates.tau(timings, steps) or 0, subject.drafting.gamma if subject.drafting else None
    demand(1 <= tau <= (gamma or drafted) + 1, f"tau is {tau:.3f} with gamma {gamma}")


@needs("tokens")
def drafting_changes_no_text(subject: Subject) -> None:
    """Greedy speculative decoding says what decoding without speculation says, but for near ties of the target."""
    plain, drafted, _ = _drafted(subject)
    alike(subject.session, plain, drafted, "speculative decoding")
