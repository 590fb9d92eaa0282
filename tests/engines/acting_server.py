"""Acts llama-server for whole runs: counts, times, steps, counters and log lines that agree with one another.

Run as a program: `acting_server.py SCRIPT [flags]`. The script is a JSON object with what goes wrong, for servers that
speculate and for those that do not: `{"speculative": {"failed_decodes": 2}, "plain": {}}`; `FAULTS` lists all of it.
Nothing is random: the same prompt brings the same tokens and drafts, the same course of requests the same times. What
it claims has passed, and hardly more.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from stand_in import BUILD, StandIn, serve

FLAGS = sys.argv[2:]
FAULTS: dict[str, Any] = {
    # How it loads.
    "build": BUILD,
    "load_lines": [],  # more lines of the log
    "speculating": None,  # what `/slots` says; None: the truth
    "offloaded": None,  # [layers on the GPU, of how many]
    "kv_type": "f16",
    "threads": None,  # in force, whatever was asked for
    "gamma": None,  # in force, whatever was asked for
    # How it generates.
    "failed_decodes": 0,  # verifications per request that fail, their stale tokens being taken all the same
    "draft_failures": 0,  # drafts per request that fail
    "replays": 0,  # restores in a row at one position, in each request
    "counts_replays_only": False,  # cuts a draft that was accepted in part, verifies it again and counts only that
    "uncounted": 0,  # target forwards per request that the counter misses
    "stuck": False,  # the same token for ever
    "stop_at": None,  # the model ends after so many tokens
    "cached": 0,  # tokens of the prompt that were not computed
    "reply": None,  # text instead of words
    "dies_at": None,  # the how manieth request kills it
    # What it claims.
    "slower": 1.0,  # claimed decode times, times this
    "two_speeds": 1.0,  # how much slower every other request is, or so
    "left_out": 0.0,  # share of the decode time that its clock does not see
    "inflated": 0,  # tokens per request that count as accepted and were not
    "printed": "decode",  # window of the rate it prints: `decode`, or `all` with the prompt in it
}

TOKEN_MS, STEP_MS, PROMPT_MS = 1.0, 1.5, 2.0
"""Of a token without drafts, of one draft-then-verify step, of a prompt."""


def option(name: str, default: str = "") -> str:
    return FLAGS[FLAGS.index(name) + 1] if name in FLAGS else default


def script() -> dict[str, Any]:
    """What goes wrong with this server."""
    speculates = option("--spec-type", "none") != "none"
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))["speculative" if speculates else "plain"]
    assert given.keys() <= FAULTS.keys(), given
    return FAULTS | {"speculates": speculates} | given


WRONG: dict[str, Any] = script()
STARTED = time.perf_counter()
TASKS = count(1)
COUNTERS = dict.fromkeys(
    ("n_decode_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"), 0
)
ONE_AT_A_TIME = threading.Lock()


def log(text: str, level: str = "I") -> None:
    us = int((time.perf_counter() - STARTED) * 1e6)
    stamp = f"{us // 60_000_000}.{us // 1_000_000 % 60:02}.{us // 1000 % 1000:03}.{us % 1000:03}"
    print(f"{stamp} {level} {text}", file=sys.stderr, flush=True)


# --- loading ---------------------------------------------------------------------------------------------------------


def gamma() -> int:
    return WRONG["gamma"] or int(option("--spec-draft-n-max", "3"))


def announce() -> None:
    """The log of a server that loads."""
    threads = WRONG["threads"] or option("--threads", "1")
    log(f"srv          init: build_info: {WRONG['build']}")
    log(f"cmn  common_param: system_info: n_threads = {threads} (n_threads_batch = {threads}) / 2 | CPU : AVX2 = 1 | ")
    announce_model(option("--model"), 11.52, WRONG["kv_type"])
    if WRONG["offloaded"]:
        log("load_tensors: offloaded {}/{} layers to GPU".format(*WRONG["offloaded"]))
    if draft := option("--spec-draft-model"):
        log(f"common_speculative_init_result: loading draft model '{draft}'")
        announce_model(draft, 0.78, "f16")
    log(f"srv    load_model: initializing, n_slots = 1, n_ctx_slot = {option('--ctx-size')}, kv_unified = 'false'")
    for line in WRONG["load_lines"]:
        log(line, "W")
    if WRONG["speculates"]:
        log(f"spec common_specu: adding speculative implementation '{option('--spec-type')}'")
        log(f"spec common_specu: - n_max={gamma()}, n_min=0, p_min=0.000000")
    else:
        log("spec common_specu: no implementations specified for speculative decoding")
    log("srv          init: model loaded")


def announce_model(path: str, mib: float, kv_type: str) -> None:
    context = option("--ctx-size")
    log(f"llama_model_loader: loaded meta data with 30 key-value pairs and 79 tensors from {path} (version GGUF V3)")
    log(f"load_tensors:   CPU_Mapped model buffer size =    {mib:.2f} MiB")
    for name, value in (("n_ctx", context), ("n_ctx_seq", context), ("n_batch", 512), ("n_ubatch", 512)):
        log(f"llama_context: {name:13} = {value}")
    log("llama_kv_cache:        CPU KV buffer size =     1.75 MiB")
    cells = "512 cells,   7 layers,  1/1 seqs"
    log(f"llama_kv_cache: size =    1.75 MiB ({cells}), K ({kv_type}):    0.88 MiB, V ({kv_type}):    0.88 MiB")
    log("resolve_fused_ops: Flash Attention enabled")
    log("sched_reserve:        CPU compute buffer size =     7.52 MiB")


# --- generating ------------------------------------------------------------------------------------------------------


@dataclass
class Round:
    """One target forward after the prompt: what was drafted for it, and what came of it."""

    drafted: int
    accepted: int
    tokens: int


@dataclass
class Play:
    """One request as it will go."""

    task: int
    prompt: str
    wanted: int
    digest: bytes = b""
    rounds: list[Round] = field(default_factory=list[Round])

    def __post_init__(self) -> None:
        self.digest = sha256(self.prompt.encode()).digest()
        self.rounds = list(self._rounds())

    @property
    def ids(self) -> list[int]:
        if WRONG["stuck"]:
            return [7] * self.wanted
        state, ids = int.from_bytes(self.digest[:4]), []
        for _ in range(self.wanted):
            state = (1_103_515_245 * state + 12_345) % 2**31
            ids.append(16 + (state >> 8) % 2000)
        return ids

    @property
    def prompt_n(self) -> int:
        return len(words(self.prompt)) - WRONG["cached"]

    @property
    def decode_ms(self) -> float:
        a_round = STEP_MS if WRONG["speculates"] else TOKEN_MS
        luck = sha256(self.digest + bytes([self.task % 256])).digest()
        slower = WRONG["slower"] * (WRONG["two_speeds"] if luck[1] % 2 else 1)
        return len(self.rounds) * a_round * slower * (1 + 0.01 * (luck[0] / 255 - 0.5))

    @property
    def claimed_ms(self) -> float:
        return self.decode_ms * (1 - WRONG["left_out"])

    def _rounds(self) -> Iterator[Round]:
        left = self.wanted - 1
        for number in count():
            if left <= 0:
                return
            drafted = min(gamma(), left - 1) if WRONG["speculates"] and number >= WRONG["draft_failures"] else 0
            accepted = min(drafted, self.digest[number % 32] % (gamma() + 1))
            yield Round(drafted, accepted, accepted + 1)
            left -= accepted + 1


def words(text: str) -> list[str]:
    return text.split() or [text]


def generate(play: Play) -> Iterator[tuple[int, int]]:
    """(position, token id) of each token when it is there, while the log tells of it."""
    if play.task == WRONG["dies_at"]:
        os.kill(os.getpid(), signal.SIGKILL)
    slot = f"id  0 | task {play.task} |"
    log(f"slot launch_slot_: {slot} processing task, is_child = 0")
    due = time.perf_counter() + PROMPT_MS / 1e3
    wait_until(due)
    COUNTERS["n_decode_total"] += 1
    ids = play.ids
    position = 1
    yield position, ids[0]
    for number, part in enumerate(play.rounds):
        if number < WRONG["draft_failures"]:
            log("spec common_specu: llama_process[0] returned -1", "E")
        due += play.decode_ms / len(play.rounds) / 1e3
        wait_until(due)
        if number < WRONG["failed_decodes"]:
            log("decode: failed to initialize batch", "E")
            log("llama_decode: failed to decode, ret = -1", "E")
        else:
            COUNTERS["n_decode_total"] += 1
        for _ in range(replays := replays_of(number, part)):
            COUNTERS["n_decode_total"] += 1
            at = f"pos_min = {play.prompt_n}, pos_max = {play.prompt_n + position - 1}"
            log(f"slot   operator(): {slot} restoring speculative checkpoint ({at}, size = 6500)")
            log(
                f"slot   operator(): {slot} accepted  {part.accepted}/ {part.drafted} draft tokens (restore checkpoint)"
            )
        if part.drafted:
            drafted, accepted = counted(part)
            COUNTERS["spec_decode_num_draft_tokens_total"] += drafted
            COUNTERS["spec_decode_num_accepted_tokens_total"] += accepted
            # A replay verifies what was accepted and the token that the target put after it.
            verified, of = (part.accepted + 1,) * 2 if replays else (part.accepted, part.drafted)
            log(f"slot   operator(): {slot} accepted  {verified}/ {of} draft tokens")
        for _ in range(part.tokens):
            position += 1
            yield position, ids[position - 1]
    COUNTERS["n_decode_total"] -= WRONG["uncounted"]
    told = timings(play)
    log(
        f"slot print_timing: {slot}        eval time = {told['predicted_ms']:10.2f} ms / {told['predicted_n']:5} tokens"
    )
    if drafted := told.get("draft_n"):
        accepted = told["draft_n_accepted"]
        text = f"{accepted / drafted:.5f} ({accepted:5} accepted / {drafted:5} generated), mean len = 2.00"
        log(f"slot print_timing: {slot} draft acceptance = {text}")
    log(f"slot      release: {slot} stop processing: n_tokens = {play.prompt_n + play.wanted}, truncated = 0")


def replays_of(number: int, part: Round) -> int:
    """How often a round restores its checkpoint."""
    return WRONG["replays"] if number == 0 else int(WRONG["counts_replays_only"] and part.accepted < part.drafted)


def counted(part: Round) -> tuple[int, int]:
    """(drafted, accepted) as the server's counters see the round."""
    return part.accepted if WRONG["counts_replays_only"] else part.drafted, part.accepted


def wait_until(due: float) -> None:
    time.sleep(max(0.0, due - time.perf_counter()))


def timings(play: Play) -> dict[str, Any]:
    tokens, ms = play.wanted, play.claimed_ms
    window_ms = ms + (PROMPT_MS if WRONG["printed"] == "all" else 0)
    steps = tokens - 1 if WRONG["printed"] == "decode" else tokens + play.prompt_n
    told: dict[str, Any] = {
        "cache_n": WRONG["cached"],
        "prompt_n": play.prompt_n,
        "prompt_ms": PROMPT_MS,
        "predicted_n": tokens,
        "predicted_ms": ms,
        "predicted_per_second": 1e3 * steps / window_ms if ms else 0.0,
    }
    drafts = [counted(part) for part in play.rounds]
    if drafted := sum(made for made, _ in drafts):
        accepted = sum(accepted for _, accepted in drafts) + WRONG["inflated"]
        told |= {"draft_n": drafted, "draft_n_accepted": min(drafted, accepted)}
    return told


class Handler(StandIn):
    def get(self) -> None:
        if self.path == "/health":
            self.answer(200, {"status": "ok"})
        elif self.headers.get("Authorization") != f"Bearer {os.environ['LLAMA_API_KEY']}":
            self.answer(401, {"error": {"message": "Invalid API Key"}})
        elif self.path == "/props":
            props = {"model_path": option("--model"), "total_slots": int(option("--parallel", "1"))}
            props["default_generation_settings"] = {"n_ctx": int(option("--ctx-size"))}
            self.answer(200, props | {"build_info": WRONG["build"], "chat_template": "{{ messages }}"})
        elif self.path == "/slots":
            active = WRONG["speculates"] if WRONG["speculating"] is None else WRONG["speculating"]
            self.answer(200, [{"id": 0, "speculative": active}])
        elif self.path == "/metrics":
            self.answer(200, "".join(f"llamacpp:{name} {value}\n" for name, value in COUNTERS.items()))
        else:
            self.answer(404, {"error": {"message": "not found"}})

    def post(self, asked: dict[str, Any]) -> None:
        if self.path == "/tokenize":
            self.answer(200, {"tokens": list(range(len(words(asked["content"]))))})
        elif self.path == "/detokenize":
            self.answer(200, {"content": " ".join(f"w{token}" for token in asked["tokens"])})
        elif self.path == "/apply-template":
            self.answer(200, {"prompt": asked["messages"][0]["content"]})
        else:
            with ONE_AT_A_TIME:
                self.complete(asked)

    def complete(self, asked: dict[str, Any]) -> None:
        stops = WRONG["stop_at"] or asked["n_predict"]
        play = Play(next(TASKS), asked["prompt"], min(asked["n_predict"], stops))
        final = {
            "content": "",
            "tokens": [],
            "stop": True,
            "stop_type": "limit" if play.wanted == asked["n_predict"] else "eos",
            "truncated": False,
            "timings": timings(play),
        }
        if not asked["stream"]:
            told = list(generate(play))
            text = "".join(text_of(token, position) for position, token in told)
            self.answer(200, final | {"tokens": [token for _, token in told], "content": text})
            return
        self.begin_stream()
        for position, token in generate(play):
            told = {"content": text_of(token, position), "tokens": [token], "tokens_predicted": position}
            self.event(told | {"stop": False})
        self.event(final)
        self.end_stream()


def text_of(token: int, position: int) -> str:
    if WRONG["reply"] is not None:
        return WRONG["reply"] if position == 1 else ""
    return f" w{token}"


def main() -> None:
    announce()
    serve(int(option("--port")), Handler)


if __name__ == "__main__":
    main()
