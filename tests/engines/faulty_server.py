"""Imitates llama-server's interface, and gets one thing wrong. Run as a program: `faulty_server.py FAULT [flags]`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from stand_in import StandIn, serve

FAULT, FLAGS = sys.argv[1], sys.argv[2:]
TIMINGS = {"prompt_n": 5, "prompt_ms": 1.0, "predicted_n": 8, "predicted_ms": 2.0, "cache_n": 0}

LOG = """srv load_model: initializing, n_slots = 1
spec common_specu: adding speculative implementation 'ngram-simple'
spec common_specu: - size_n=3, size_m=6, min_hits=1
srv init: model loaded"""


def option(name: str) -> str:
    return FLAGS[FLAGS.index(name) + 1]


class Handler(StandIn):
    def get(self) -> None:
        key = f"Bearer {os.environ['LLAMA_API_KEY']}"
        if self.path == "/health":
            if FAULT == "never-ready":
                self.answer(503, {"error": {"message": "Loading model"}})
            else:
                self.answer(200, {"status": "ok"})
        elif FAULT != "ignores-key" and self.headers.get("Authorization") != key:
            self.answer(401, {"error": {"message": "Invalid API Key"}})
        elif self.path == "/props":
            path = "/somewhere/else.gguf" if FAULT == "wrong-model" else option("--model")
            body: Any = "no JSON" if FAULT == "garbage-props" else {"model_path": path, "total_slots": 1}
            self.answer(200, body)
        elif self.path == "/slots":
            self.answer(200, [{"speculative": False}])
        elif self.path == "/metrics":
            text = "llamacpp:n_decode_total nonsense\n" if FAULT == "garbage-metrics" else "llamacpp:n_decode_total 1\n"
            self.answer(200, text)
        else:
            self.answer(404, {"error": {"message": "not found"}})

    def post(self, asked: dict[str, Any]) -> None:
        if FAULT == "refuses":
            message = "request (900 tokens) exceeds the available context size (512 tokens), try increasing it"
            return self.answer(400, {"error": {"message": message, "type": "exceed_context_size_error"}})
        if FAULT == "garbage-tokens" or self.path != "/completion":
            return self.answer(200, {"tokens": "none"})
        if not asked["stream"]:
            return self.answer_in_one_piece()
        self.begin_stream()
        for count in range(1, 5):
            self.event({"content": "x", "tokens": [count], "tokens_predicted": count, "stop": False})
        self.misbehave()
        return self.finish_stream(TIMINGS)

    def answer_in_one_piece(self) -> None:
        if FAULT == "hangs":
            time.sleep(60)
        elif FAULT == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif FAULT == "breaks-off":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            self.close_connection = True
        elif FAULT == "garbage":
            self.answer(200, "{not json")
        else:
            tokens = [1] * (3 if FAULT == "too-few-ids" else TIMINGS["predicted_n"])
            self.answer(200, {"content": "x", "tokens": tokens, "stop_type": "limit", "timings": TIMINGS})

    def misbehave(self) -> None:
        if FAULT == "dies":
            print("GGML_ASSERT(something) failed", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        elif FAULT == "hangs":
            while True:
                time.sleep(0.2)
                self.chunk(b":\n\n")  # keep-alive comments are no progress
        elif FAULT == "endless":
            for count in range(5, 1_000_000):
                self.event({"content": "x", "tokens": [count], "tokens_predicted": count, "stop": False})
        elif FAULT == "fills":
            while True:
                self.chunk(b"x" * 65536)
        elif FAULT == "garbage":
            self.chunk(b"data: {not json\n\n")
        elif FAULT == "backwards":
            self.event({"content": "x", "tokens": [1], "tokens_predicted": 2, "stop": False})
        elif FAULT == "error":
            self.event({"error": {"code": 500, "message": "Compute error."}})
        elif FAULT == "no-final":
            self.end_stream()
            raise ConnectionAbortedError
        elif FAULT == "breaks-off":
            raise ConnectionAbortedError

    def finish_stream(self, timings: dict[str, Any]) -> None:
        changes: dict[str, Any] = {
            "absurd-time": {"predicted_ms": 1e9},
            "negative": {"predicted_ms": -1},
            "not-a-number": {"predicted_ms": float("nan")},
            "too-many": {"predicted_n": 999},
            "text-for-number": {"prompt_n": "five"},
        }.get(FAULT, {})
        final = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "timings": timings | changes}
        if FAULT == "no-timings":
            del final["timings"]
        self.event(final)
        self.end_stream()


def main() -> None:
    if FAULT == "dies-at-load":
        print("0.00.001.000 E srv    load_model: failed to load model, 'x.gguf'", file=sys.stderr)
        sys.exit(1)
    else:
        threading.Timer(0.3 if FAULT == "logs-late" else 0.0, print, [LOG], {"flush": True}).start()
        serve(int(option("--port")), Handler)


main()
