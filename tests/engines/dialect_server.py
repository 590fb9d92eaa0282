"""Stands in for engines that already run, each in its own dialect. Nothing but the interface is theirs: the text is
numbers, a fixed pattern says what is accepted, and `wrong` names one thing that goes wrong.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

from stand_in import Server, StandIn

GAMMA = 4
PATTERN = (4, 2, 0, 3)
"""Of the drafts in a text, one after the other, so many tokens are accepted."""
OWNERS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt": "tensorrt_llm",
    "lmstudio": "organization_owner",
    "ollama": "library",
    "unknown": "another",
}


def steps_of(tokens: int, *, beyond: bool = False) -> list[tuple[int, int]]:
    """(drafted, accepted) of each step behind the first token; `beyond` the limit too, as vLLM does it."""
    found: list[tuple[int, int]] = []
    left = tokens - 1
    for wanted in itertools.cycle(PATTERN):
        if left <= 0:
            return found
        drafted = GAMMA if beyond else min(GAMMA, left - 1)
        accepted = wanted if beyond else min(wanted, drafted)
        found.append((drafted, accepted))
        left -= accepted + 1
    raise AssertionError


class Speaker:
    """What one server is and has counted."""

    def __init__(self, dialect: str, *, speculates: bool, wrong: str, per_request: bool) -> None:
        self.dialect, self.speculates, self.wrong, self.per_request = dialect, speculates, wrong, per_request
        self.model, self.context = "target", 4096
        self.replies_as = ""
        """What its replies call the model; empty: by its name."""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.keys: set[str | None] = set()
        self.drafts = self.drafted = self.accepted = self.generated = self.forwards = 0
        self.iterations: list[dict[str, Any]] = []

    def steps(self, tokens: int) -> list[tuple[int, int]]:
        return steps_of(tokens, beyond=self.dialect == "vllm") if self.speculates else [(0, 0)] * (tokens - 1)

    def count(self, tokens: int) -> None:
        steps = self.steps(tokens)
        self.generated, self.forwards = self.generated + tokens, self.forwards + 1 + len(steps)
        if not self.speculates:
            return
        self.drafts += len(steps)
        self.drafted += sum(drafted for drafted, _ in steps)
        self.accepted += sum(accepted for _, accepted in steps)
        self.iterations += [
            {"specDecodingStats": {"numDraftTokens": one, "numAcceptedTokens": two, "numRequestsWithDraftTokens": 1}}
            for one, two in steps
        ]

    def metrics(self) -> str:
        """Some lines of a vLLM 0.32.0's, which has 600."""
        drafts = {"drafts": self.drafts, "draft_tokens": self.drafted, "accepted_tokens": self.accepted}
        counted = [(f"spec_decode_num_{name}_total", it) for name, it in drafts.items()] if self.speculates else []
        counted += [("generation_tokens_total", self.generated), ("iteration_tokens_total_count", self.forwards)]
        lines = [f'vllm:{name}{{engine="0",model_name="{self.model}"}} {it}.0' for name, it in counted]
        return "\n".join(["vllm:generation_tokens_created{} 1.7958117425243678e+09", *lines, ""])

    def said(self, tokens: int) -> dict[str, Any]:
        """What the last part of a reply says beside its usage."""
        steps = [it for it in self.steps(tokens) if it[0]]
        drafted, accepted = (sum(it[at] for it in steps) for at in (0, 1))
        if not self.speculates or not self.per_request:
            return {}
        if self.dialect == "vllm":
            about = {"num_draft_tokens": drafted, "num_accepted_draft_tokens": accepted, "num_spec_steps": len(steps)}
            about |= {"draft_acceptance_rate": accepted / max(1, drafted), "num_spec_tokens": GAMMA}
            about |= {"per_step_drafted": [it for it, _ in steps], "per_step_accepted": [it for _, it in steps]}
            return {"metrics": {"queue_time_ms": 0.5, "mean_itl_ms": None, "speculative_decoding": about}}
        if self.dialect == "sglang":
            own = {"spec_draft_token_num": drafted, "spec_accept_token_num": accepted, "spec_verify_ct": len(steps)}
            return {"meta_info": own}
        if self.dialect == "lmstudio":
            own = {"total_draft_tokens_count": drafted, "accepted_draft_tokens_count": accepted}
            return {"stats": own | {"rejected_draft_tokens_count": sum(two < one for one, two in steps)}}
        return {}


class Handler(StandIn):
    speaker: Speaker

    def get(self) -> None:
        it = self.speaker
        it.keys.add(self.headers.get("Authorization"))
        if it.wrong == "key" and self.headers.get("Authorization") != "Bearer right":
            return self.answer(401, {"error": {"message": "no"}})
        if it.wrong == "redirect":
            self.send_response(307)
            self.send_header("Location", "http://elsewhere.example/v1/models")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        own: dict[str, Any] = {
            "/v1/models": {"data": [{"id": it.model, "owned_by": OWNERS[it.dialect], "max_model_len": it.context}]}
        }
        if it.dialect in ("vllm", "tensorrt"):
            own["/version"] = {"version": "9.8.7"}
        if it.dialect == "vllm" and it.wrong != "no-metrics":
            own["/metrics"] = "" if it.wrong == "no-counts" else it.metrics()
        elif it.dialect == "tensorrt":
            own["/metrics"], it.iterations = it.iterations, []
        elif it.dialect == "sglang":
            own["/get_server_info"] = {"speculative_algorithm": "EAGLE" if it.speculates else None, "version": "0.9"}
        elif it.dialect == "ollama":
            own["/api/version"] = {"version": "1.2"}
        if it.wrong == "as-lmstudio":
            own["/api/v0/models"] = {"data": []}
        if self.path in own:
            return self.answer(200, own[self.path])
        return self.answer(404, {"error": {"message": "not found"}})

    def post(self, asked: dict[str, Any]) -> None:
        it = self.speaker
        it.asked.append((self.path, asked))
        if it.dialect == "vllm" and self.path == "/tokenize":
            text = asked.get("prompt") or asked["messages"][-1]["content"]
            return self.answer(200, {"tokens": [ord(letter) for letter in text]})
        if it.dialect == "vllm" and self.path == "/detokenize":
            return self.answer(200, {"prompt": "".join(map(chr, asked["tokens"]))})
        if (
            not self.path.endswith(("completions", "/generate"))
            or (self.path == "/generate" and it.dialect != "sglang")
            or (it.wrong == "as-lmstudio" and "/v0/" in self.path)
        ):
            return self.answer(404, {"error": {"message": "not found"}})
        if it.wrong == "limit" and asked.get("stream"):
            body = b"{}"
            self.send_response(429)
            self.send_header("Retry-After", "17")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None
        tokens = asked["sampling_params"]["max_new_tokens"] if self.path == "/generate" else asked["max_tokens"]
        it.count(tokens)
        parts = list(self.parts(tokens))
        if not asked.get("stream"):
            whole = self.whole(parts, tokens)
            if it.dialect == "vllm" and asked.get("logprobs"):
                near = {"token_id:1": -1.5, "token_id:0": -0.5}
                whole["choices"][0]["logprobs"] = {"top_logprobs": [near] * tokens}
            return self.answer(200, whole)
        self.begin_stream()
        for part in parts:
            self.event(part)
            time.sleep(0.002)
        if it.wrong == "breaks-off":
            self.event({"error": {"message": "out of memory"}})
        self.chunk(b"data: [DONE]\n\n")
        return self.end_stream()

    def parts(self, tokens: int) -> Iterator[dict[str, Any]]:
        """One for each step, as engines stream them, and one with what stands beside the text."""
        it, done = self.speaker, 0
        chat = "chat" in self.path
        for ids in ([0], *(range(1, 2 + accepted) for _, accepted in it.steps(tokens))):
            new = list(range(done, min(tokens, done + len(ids))))
            done += len(new)
            text = "".join(f" {number}" for number in new)
            if self.path == "/generate":
                every = "".join(f" {number}" for number in range(done))
                about = {"completion_tokens": done, "prompt_tokens": 7, "cached_tokens": 0}
                about |= {"finish_reason": {"type": "length"} if done == tokens else None}
                about |= it.said(tokens).get("meta_info", {}) if done == tokens else {}
                yield {"text": every, "output_ids": list(range(done)), "meta_info": about}
                continue
            said: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
            if it.dialect == "vllm":
                said["token_ids"] = new
            yield {
                "model": it.replies_as or it.model,
                "choices": [said | {"finish_reason": "length" if done == tokens else None}],
            }
        if self.path != "/generate" and it.wrong != "no-usage":
            usage = {"prompt_tokens": 7, "completion_tokens": tokens}
            name = "another" if it.wrong == "other-model" else it.replies_as or it.model
            yield {"model": name, "choices": [], "usage": usage, **it.said(tokens)}

    def whole(self, parts: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
        if self.path == "/generate":
            return parts[-1]
        said = {"text": "x", "finish_reason": "length"}
        if self.speaker.dialect == "vllm":
            said |= {"token_ids": list(range(tokens))}
        return {**parts[-1], "choices": [said]}


@contextlib.contextmanager
def speaking(
    dialect: str, *, speculates: bool = True, wrong: str = "", per_request: bool = True
) -> Iterator[tuple[str, Speaker]]:
    """(URL, what stands behind it) of a server that speaks a dialect."""
    speaker = Speaker(dialect, speculates=speculates, wrong=wrong, per_request=per_request)
    server = Server(("127.0.0.1", 0), type("OfSpeaker", (Handler,), {"speaker": speaker}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", speaker
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
