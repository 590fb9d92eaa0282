"""A small agent with three tools that edits a Python file until its tests pass: traffic to be recorded.

    llama-server -m MODEL --jinja --port 8080
    uv run specmeter record --to http://127.0.0.1:8080 --out session.jsonl
    uv run python scripts/agent.py http://127.0.0.1:8081

The tasks are ours, and so is what the tools answer: a folder in memory, and `exec` of the file's text with its tests in
a process of its own. Small models call no tool by themselves: the first three calls of a task require one, and the
token that begins a call, if the model has one, is favoured. Models without it chat.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

START = '''"""Prices of a shop."""


def total(prices):
    result = 0
    for price in prices:
        result = result - price
    return result


def cheapest(prices):
    best = prices[0]
    for price in prices:
        if price > best:
            best = price
    return best
'''
TESTS = {
    "test_total": "from shop import total\nassert total([1, 2, 3]) == 6\n",
    "test_cheapest": "from shop import cheapest\nassert cheapest([3, 1, 2]) == 1\n",
    "test_mean": "from shop import mean\nassert mean([2, 4]) == 3\n",
    "test_discount": "from shop import discount\nassert discount(100, 20) == 80\n",
}
TASKS = (
    ("total() returns a wrong sum: it must add the prices. Read shop.py.", "total() corrected", "test_total"),
    ("cheapest() returns the dearest price. Read shop.py.", "cheapest() corrected", "test_cheapest"),
    ("A function mean(prices) is missing. Read shop.py.", "the function mean(prices) added", "test_mean"),
    (
        "A function discount(price, percent) is missing. Read shop.py.",
        "the function discount(price, percent) added",
        "test_discount",
    ),
)
"""What is wrong, what to write, and the test."""
SYSTEM = "You are a programmer. Use the tools, one at a time."


def _called(own: str, name: str, /, **arguments: str) -> dict[str, Any]:
    call = {"id": own, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


EXAMPLE = [
    {"role": "user", "content": "double() returns a wrong number. Read numbers.py."},
    _called("c1", "read_file", path="numbers.py"),
    {"role": "tool", "tool_call_id": "c1", "content": "def double(x):\n    return x + 2\n"},
    {"role": "user", "content": "Write all of numbers.py, with double() corrected."},
    _called("c2", "write_file", path="numbers.py", content="def double(x):\n    return x + x\n"),
    {"role": "tool", "tool_call_id": "c2", "content": "32 characters written to numbers.py"},
    {"role": "user", "content": "Run test_double."},
    _called("c3", "run_test", name="test_double"),
    {"role": "tool", "tool_call_id": "c3", "content": "passed"},
    {"role": "user", "content": "What did you do, in one sentence?"},
    {"role": "assistant", "content": "double() added 2; now it adds the number to itself, and test_double passes."},
]
"""Small models call tools only if they have seen it done."""
BEGINS, BARE = ("<tool_call>", 16), (("{", '{"', "{\n", "```"), -6)
"""Qwen2.5-Coder writes calls without the token that begins them; with these logit biases it does not."""


def _tool(name: str, about: str, /, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": value} for key, value in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


TOOLS = [
    _tool("read_file", "Read a file.", path="name of the file"),
    _tool("write_file", "Replace a file.", path="name of the file", content="all of its new text"),
    _tool("run_test", "Run a test.", name="one of " + ", ".join(TESTS)),
]


class Folder:
    """What the tools work on."""

    def __init__(self) -> None:
        self.files = {"shop.py": START}

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        path = str(arguments.get("path", ""))
        if name == "read_file":
            return self.files.get(path, f"no file {path}")
        if name == "write_file":
            self.files[path] = str(arguments.get("content", ""))
            return f"{len(self.files[path])} characters written to {path}"
        test = TESTS.get(str(arguments.get("name", "")).removesuffix(".py"))
        return f"no such tool or test; tests: {', '.join(TESTS)}" if test is None else self._run(test)

    def _run(self, test: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in self.files.items():
                (Path(folder) / Path(name).name).write_text(text, encoding="utf-8")
            (Path(folder) / "test.py").write_text(test, encoding="utf-8")
            done = subprocess.run([sys.executable, "test.py"], cwd=folder, capture_output=True, text=True, timeout=20)
        return "passed" if done.returncode == 0 else done.stderr.strip().splitlines()[-1].partition(" (")[0]


def post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{url.rstrip('/')}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.loads(reply.read())


def ask(url: str, messages: list[dict[str, Any]], forced: dict[str, Any]) -> dict[str, Any]:
    """The model's answer."""
    body = {
        "messages": messages,
        "tools": TOOLS,
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_tokens": 200,
        **forced,
    }
    return post(url, "/v1/chat/completions", body)["choices"][0]["message"]


class Agent:
    """A model that is told what to do next; everything said so far."""

    def __init__(self, url: str) -> None:
        self._url, self._folder = url, Folder()
        self._said: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, *EXAMPLE]
        begins = self._tokens(BEGINS[0])
        self._forced: dict[str, Any] = {"tool_choice": "required"}
        if len(begins) == 1:
            bare = [ids[0] for text in BARE[0] if len(ids := self._tokens(text)) == 1]
            self._forced["logit_bias"] = [[begins[0], BEGINS[1]], *([it, BARE[1]] for it in bare)]

    def _tokens(self, text: str) -> list[int]:
        return post(self._url, "/tokenize", {"content": text, "parse_special": True})["tokens"]

    def say(self, text: str, *, tool: bool = True) -> str:
        """Ask for something; what the last tool said that the model called for it."""
        self._said.append({"role": "user", "content": text})
        reply = ask(self._url, self._said, self._forced if tool else {})
        calls, told = reply.get("tool_calls") or [], ""
        answer = {"role": "assistant", "content": reply.get("content") or ""}
        self._said.append(answer | ({"tool_calls": calls} if calls else {}))
        for call in calls:
            try:
                arguments = json.loads(call["function"]["arguments"])
                told = self._folder.call(call["function"]["name"], arguments)
            except ValueError as error:  # cut at the limit; servers refuse a conversation with it
                call["function"]["arguments"], told = "{}", f"arguments are no JSON: {error}"
            print(f"{call['function']['name']}: {told[:60]!r}", flush=True)
            self._said.append({"role": "tool", "tool_call_id": call["id"], "content": told})
        return told


def main(url: str, tasks: int = len(TASKS)) -> None:
    agent = Agent(url)
    for wrong, written, test in TASKS[:tasks]:
        agent.say(wrong)
        for _ in range(2):
            agent.say(f"Write all of shop.py, with {written}.")
            if agent.say(f"Run {test}.") == "passed":
                break
        agent.say("What did you do, in one sentence?", tool=False)
        print(f"-- {wrong}", flush=True)


main(sys.argv[1], *map(int, sys.argv[2:3]))
