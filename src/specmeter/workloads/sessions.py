"""Reads recorded sessions: each call of a model in them, with what was said before it and what was answered.

| a line (or an entry of a JSON list) | is |
|---|---|
| `recorded`, of `specmeter record` | a call; messages that its parent had are not repeated |
| `messages` whose last is the assistant's, `conversations` | a session: each message of the assistant is a call |
| other `messages`, `body`, `payload` | a request; its session is `session_id`, else found by prefix |
| `custom_id` with `response` (OpenAI batch output) | the answer to the request of that id |
| `turns` or `messages` of users alone (AIPerf, SPEED-Bench) | its first turn; later ones lack what comes before |

Formats: OpenAI's batch guide; AIPerf, the models of its data set loaders; SPEED-Bench, NeMo-Skills' script
that prepares it. Traces without text (`input_length`, `hash_ids`) are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from specmeter.errors import ExperimentError
from specmeter.record import ChatMessage
from specmeter.text import size
from specmeter.workloads.conversations import (
    first_of,
    held_of,
    joined_halves,
    keys_of,
    message_of,
    messages_of,
    tools_of,
    turns_of,
)

MAX_FILE_BYTES = 4 * 2**30
MAX_LINE_BYTES = 256 * 2**20
MAX_CALLS = 100_000
FORMAT = "specmeter-session"
"""Key of the first line of a recording; its value is the version."""
VERSION = 1

SAMPLED = ("temperature", "top_k", "top_p", "min_p", "seed", "repeat_penalty", "presence_penalty", "frequency_penalty")
"""Parameters of sampling that a recording keeps, by their names in requests."""

_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
_WITHOUT_TEXT = ("input_length", "hash_ids")
_FIX = "record a session with `specmeter record`, or write one conversation per line; docs/how-to/sessions.md has forms"


@dataclass(frozen=True)
class Call:
    """A call of a model in a session."""

    session: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[dict[str, Any], ...] = ()
    held: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of `HELD`, what the request set."""
    reply: ChatMessage | None = None
    """None if it was not recorded."""
    known: int = 0
    """Messages at the beginning that the server had read or written before, in this session."""
    sampling: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of `SAMPLED`, what the request set."""
    max_tokens: int | None = None
    reply_tokens: int | None = None
    """Tokens of the answer, as the server counted them."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, those in the cache included."""
    cached_tokens: int | None = None
    wall_ms: float | None = None


@dataclass(frozen=True)
class Recording:
    """What files hold."""

    calls: tuple[Call, ...]
    """By session, in order; sessions in the order of their first call."""
    left_out: int = 0
    """Calls that cannot be asked again: with images, or after answers that were not recorded."""
    failed: int = 0
    """Calls that the server refused."""


BUNDLED = "bundled:"
"""Begins the names of recordings that come with the package."""


def session_path(path: str, base_dir: Path) -> Path:
    """Where a recording lies. Raises `ExperimentError` for a bundled one that there is not."""
    if not path.startswith(BUNDLED):
        return base_dir / Path(path).expanduser()
    shelf = Path(str(files("specmeter.workloads") / "recordings"))
    names = sorted(it.stem for it in shelf.glob("*.jsonl"))
    if (name := path.removeprefix(BUNDLED)) not in names:
        raise ExperimentError(f"{path[:80]}: no such recording", fix=f"use one of {', '.join(names)}")
    return shelf / f"{name}.jsonl"


def read_sessions(paths: Sequence[Path]) -> Recording:
    """All calls of the files. Raises `ExperimentError`, which names file and line of the first fault."""
    found = _Sessions()
    for path in paths:
        empty = True
        for place, entry in _entries(path):
            empty = False
            found.take(entry, place, path.stem)
            if len(found.calls) > MAX_CALLS:
                raise ExperimentError(f"{place}: more than {MAX_CALLS} calls", fix="use a part of the file")
        if empty:
            raise ExperimentError(f"{path}: contains no call of a model", fix=_FIX)
    recording = found.recording()
    if not recording.calls:
        named = ", ".join(map(str, paths))[:200]
        raise ExperimentError(f"{named}: no call of a model that can be asked again", fix=_FIX)
    return recording


def known_of(messages: Sequence[ChatMessage], earlier: Call | None) -> int:
    """How many messages at the beginning are those of an earlier call, its answer included."""
    if earlier is None:
        return 0
    there = (*earlier.messages, *([earlier.reply] if earlier.reply else ()))
    same = (ours == theirs for ours, theirs in zip(messages, there, strict=False))
    return next((place for place, it in enumerate(same) if not it), min(len(messages), len(there)))


_UNSENT = {"reasoning": ""}
"""What clients may leave out when they send an answer back."""


class _Sessions:
    """Calls, as lines come; a request belongs to the session whose latest call it continues."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._left_out = 0
        self._failed = 0
        self._of_prefix: dict[tuple[str, str], int] = {}
        """(session asked for, digest of messages) -> the latest call of these messages."""
        self._by_id: dict[str, int] = {}
        """Id of a recorded call or of a batch request -> the call."""
        self._lost: set[str] = set()
        """Ids of recorded calls that cannot be asked again."""
        self._names: set[str] = set()
        self._numbers = Counter[str]()
        """Of names that come several times: the last number."""

    def recording(self) -> Recording:
        order = {name: place for place, name in enumerate(dict.fromkeys(it.session for it in self.calls))}
        calls = sorted(self.calls, key=lambda it: order[it.session])
        return Recording(tuple(calls), self._left_out, self._failed)

    def take(self, entry: Mapping[str, Any], place: str, stem: str) -> None:
        """One line of a file."""
        if FORMAT in entry:
            if entry[FORMAT] != VERSION:
                raise ExperimentError(f"{place}: version {entry[FORMAT]!r:.20} of recordings", fix="record it again")
        elif "recorded" in entry:
            self._recorded(entry, place, stem)
        elif isinstance(entry.get("response"), Mapping) and "custom_id" in entry:
            self._answered(entry, place)
        elif isinstance(data := entry.get("data"), list):  # AIPerf's inputs.json
            self._payloads(cast("list[object]", data), place, stem)
        else:
            self._listed(entry, place, stem)

    def _listed(self, entry: Mapping[str, Any], place: str, stem: str) -> None:
        """A conversation or a request, in one of the forms that others write."""
        entry = keys_of(entry.get("payload")) or entry
        turns = turns_of(entry)
        if turns is None and isinstance(entry.get("turns"), list):
            turns = [_user_turn(it) for it in cast("list[object]", entry["turns"])]
        if turns is None:
            lacks = next((it for it in _WITHOUT_TEXT if it in entry), None)
            why = f"a trace without text (`{lacks}`), which cannot be replayed" if lacks else "no conversation"
            raise ExperimentError(f"{place}: {why}", fix=_FIX)
        self._conversation(entry, messages_of(turns, place), place, stem)

    def _conversation(self, entry: Mapping[str, Any], messages: tuple[ChatMessage, ...], place: str, stem: str) -> None:
        if isinstance(system := entry.get("system"), str) and system and messages and messages[0].role != "system":
            messages = (ChatMessage(role="system", content=system), *messages)
        tools = tools_of(entry, place)
        if any(_PLACEHOLDER in it.content for it in messages):
            raise ExperimentError(f"{place}: holds a placeholder instead of text", fix="prepare the data set first")
        body = keys_of(entry.get("body")) or entry
        asked = str(entry.get("session_id") or "")
        if messages and messages[-1].role == "assistant":  # a whole conversation
            name = self._name(asked or str(entry.get("id") or entry.get("question_id") or ""), stem)
            known = 0
            for number, message in enumerate(messages):
                if message.role == "assistant" and number and messages[number - 1].role != "assistant":
                    self._add(Call(name, messages[:number], tools, held_of(entry), message, known))
                    known = number + 1
            return
        users = [number for number, it in enumerate(messages) if it.role == "user"]
        if not users:
            raise ExperimentError(f"{place}: the conversation has no user turn", fix=_FIX)
        later = [number for number in users if number and messages[number - 1].role == "user"]
        if later:  # turns of users alone
            self._left_out += len(later)
            messages = messages[: later[0]]
        call = Call(
            "", messages, tools, held_of(entry), sampling=_sampling(body), max_tokens=_count(body, "max_tokens")
        )
        place_of = self._request(call, asked, stem)
        if isinstance(own := entry.get("custom_id"), str):
            self._by_id[own] = place_of

    def _request(self, call: Call, asked: str, stem: str) -> int:
        """A request, with the session that it continues; the answer to the call before is in its messages."""
        digests = _digests(call.messages)
        for count in range(len(digests) - 1, 0, -1):
            before = self._of_prefix.get((asked, digests[count - 1]))
            if before is None:
                continue
            earlier = self.calls[before]
            if earlier.reply is None and call.messages[count].role == "assistant":
                earlier = self.calls[before] = replace(earlier, reply=call.messages[count])
            call = replace(call, session=earlier.session, known=known_of(call.messages, earlier))
            break
        if not call.session:
            call = replace(call, session=self._name(asked, stem))
        self._add(call)
        self._of_prefix[asked, digests[-1]] = len(self.calls) - 1
        return len(self.calls) - 1

    def _recorded(self, entry: Mapping[str, Any], place: str, stem: str) -> None:
        """A call as `specmeter record` wrote it."""
        own, parent = str(entry["recorded"]), entry.get("parent")
        if not isinstance(status := entry.get("status"), int) or status != 200:
            self._failed += 1
            return
        earlier = self.calls[self._by_id[f"{stem}:{parent}"]] if f"{stem}:{parent}" in self._by_id else None
        if parent is not None and f"{stem}:{parent}" in self._lost:
            self._lose(f"{stem}:{own}")
            return
        if parent is not None and earlier is None:
            raise ExperimentError(f"{place}: its parent {parent!r:.20} is not in the file", fix=_FIX)
        shared = entry.get("shared", 0)
        there = () if earlier is None else (*earlier.messages, *([earlier.reply] if earlier.reply else ()))
        if not isinstance(shared, int) or not 0 <= shared <= len(there):
            raise ExperimentError(f"{place}: `shared` is not a number of its parent's messages", fix="record it again")
        try:
            messages = (*there[:shared], *messages_of(entry.get("messages"), place))
        except ExperimentError:  # images, for one
            self._lose(f"{stem}:{own}")
            return
        tools = earlier.tools if earlier is not None and "tools" not in entry else tools_of(entry, place)
        said = {key: it for key, it in keys_of(entry.get("reply")).items() if it is not None}
        reply = {"role": "assistant", "content": "", **said}
        timings, usage = keys_of(entry.get("timings")), keys_of(entry.get("usage"))
        details = keys_of(usage.get("prompt_tokens_details"))
        call = Call(
            session=earlier.session if earlier is not None else self._name("", stem),
            messages=messages,
            tools=tools,
            held=held_of(entry),
            reply=message_of(reply, f"{place}, reply") if said else None,
            known=known_of(messages, earlier),
            sampling=_sampling(keys_of(entry.get("sampling"))),
            max_tokens=_count(entry, "max_tokens"),
            reply_tokens=_count(timings, "predicted_n") or _count(usage, "completion_tokens"),
            prompt_tokens=_count(usage, "prompt_tokens"),
            cached_tokens=_count(timings, "cache_n") if "cache_n" in timings else _count(details, "cached_tokens"),
            wall_ms=_number(entry, "wall_ms"),
        )
        self._add(call)
        self._by_id[f"{stem}:{own}"] = len(self.calls) - 1

    def _answered(self, entry: Mapping[str, Any], place: str) -> None:
        """A line of a batch's output."""
        response = keys_of(entry["response"])
        answer = keys_of(response.get("body"))
        at = self._by_id.get(str(entry["custom_id"]))
        if at is None or not answer:
            raise ExperimentError(
                f"{place}: an answer without its request", fix="give the batch's input file before its output"
            )
        if response.get("status_code") != 200:
            self._failed += 1
            return
        usage = keys_of(answer.get("usage"))
        reply = message_of(first_of(answer.get("choices")).get("message"), place)
        tokens = _count(usage, "completion_tokens")
        self.calls[at] = replace(
            self.calls[at], reply=reply, reply_tokens=tokens, prompt_tokens=_count(usage, "prompt_tokens")
        )

    def _payloads(self, data: Sequence[object], place: str, stem: str) -> None:
        for it in data:
            session = keys_of(it)
            for payload in cast("list[object]", session.get("payloads") or []):
                if given := keys_of(payload):
                    self.take({**given, "session_id": session.get("session_id")}, place, stem)

    def _name(self, wanted: str, stem: str) -> str:
        """A name that no other session has."""
        base = "".join(it if it.isalnum() or it in "._-" else "-" for it in wanted)[:40].strip(".-_") or stem[:40]
        name = base
        while name in self._names or (name == stem[:40] and not wanted):
            self._numbers[base] += 1
            name = f"{base}-{self._numbers[base]}"
        self._names.add(name)
        return name

    def _lose(self, own: str) -> None:
        self._lost.add(own)
        self._left_out += 1

    def _add(self, call: Call) -> None:
        self.calls.append(call)


def _digests(messages: Sequence[ChatMessage]) -> list[str]:
    """Of the messages up to each."""
    sums, digest = list[str](), hashlib.sha256()
    for it in messages:
        digest.update(it.model_copy(update=_UNSENT).model_dump_json().encode("utf-8", "surrogatepass"))
        sums.append(digest.hexdigest())
    return sums


def _user_turn(turn: object) -> object:
    """A turn of AIPerf or SPEED-Bench: text, or an object with `text`."""
    if isinstance(turn, str):
        return {"role": "user", "content": turn}
    given = keys_of(turn)
    return {"role": given.get("role") or "user", "content": given["text"]} if "text" in given else given


def _sampling(given: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name in SAMPLED if (value := _number(given, name)) is not None}


def _number(given: Mapping[str, Any], key: str) -> float | None:
    value = given.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 2**53:
        return None
    return float(value)


def _count(given: Mapping[str, Any], key: str) -> int | None:
    value = _number(given, key)
    return None if value is None else int(value)


def _entries(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place, object) for each object of a file: JSON lines, or one JSON value. Broken last lines, as a recorder that
    was killed leaves them, are left out."""
    try:
        if not path.is_file():
            raise ExperimentError(f"{path}: no such file", fix="check the path")
        if (length := path.stat().st_size) > MAX_FILE_BYTES:
            raise ExperimentError(f"{path}: {size(length)} is above the limit of {size(MAX_FILE_BYTES)}", fix=_FIX)
        with path.open("rb") as file:
            if file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[" or path.suffix.lower() == ".json":
                file.seek(0)
                parsed = _parsed(file.read(MAX_LINE_BYTES + 1), str(path))
                for number, it in enumerate(cast("list[object]", parsed) if isinstance(parsed, list) else [parsed], 1):
                    yield _object(it, f"{path}, entry {number}")
                return
            file.seek(0)
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                place = f"{path}, line {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise ExperimentError(f"{place}: longer than {size(MAX_LINE_BYTES)}", fix="shorten it")
                if not line.strip():
                    continue
                whole = line.endswith(b"\n")
                try:
                    yield _object(_parsed(line, place), place)
                except ExperimentError:
                    if whole or number == 1:
                        raise
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror}", fix="check its permissions") from None


def _object(value: object, place: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise ExperimentError(f"{place}: is not an object", fix=_FIX)
    return place, cast("Mapping[str, Any]", value)


def _parsed(line: bytes, place: str) -> object:
    if len(line) > MAX_LINE_BYTES:
        raise ExperimentError(f"{place}: longer than {size(MAX_LINE_BYTES)}", fix="write one conversation per line")
    try:
        text = line.decode("utf-8-sig")
        if "\\ud" in text or "\\uD" in text:  # escaped halves of characters cannot be written
            return json.loads(joined_halves(json.dumps(json.loads(text), ensure_ascii=False)))
        return json.loads(text)
    except UnicodeDecodeError:
        raise ExperimentError(f"{place}: not UTF-8", fix="save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise ExperimentError(f"{place}: not JSON: {error.msg} at column {error.colno}", fix=_FIX) from None
    except (RecursionError, ValueError):
        raise ExperimentError(f"{place}: nested too deeply, or a number with too many digits", fix=_FIX) from None
