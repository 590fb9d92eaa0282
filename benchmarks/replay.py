"""Do counters equal the replay of their own texts, and how sharply does that tell other drafts from the right one?

    uv run python benchmarks/replay.py [--engines embedded libllama] [--targets bench:dense-400m ...] [--per-kind 1]
                                       [--tokens 96] [--threads 1] [--temperature 0] [--folder DIR]

Measures small experiments: two draft models at gamma 1, 2, 4, 8 and 16, one with a `p_min` and one with a `gamma_min`,
lookups, and both together; prompts of five kinds, two of them as chat. For each arm it says in how many generations the
drafted and accepted tokens equal the replay to the unit, in how many more a near tie of the draft explains the
difference, and how many are contradicted (none should be). Then what has to be contradicted: profiles of the other
draft, of the prompt without its template, and counters that are off by one. With --folder the runs are kept, and read
again if they are there. Speeds are not measured, so other load does not matter.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from specmeter.llama_binding.model import Model
from specmeter.probe.profile import Passage, profile_texts
from specmeter.probe.replay import ProfileKey
from specmeter.record import Finding, MatchProfile, Request
from specmeter.store import RunStore
from specmeter.validity.checks.replay import exact, replay_differs
from specmeter.validity.checks.requests import in_columns
from specmeter.validity.checks.run_data import RunData, read_run_data

PromptOf = Callable[[Request, tuple[int, ...]], tuple[int, ...]]
"""Request and its prompt -> the prompt that the draft reads."""
GAMMAS = (1, 2, 4, 8, 16)
TARGETS = ("bench:dense-400m", "bench:moe-400m", "bench:hybrid", "bench:dense-100m?quant=Q8_0")


def experiment(engine: str, target: str, per_kind: int, tokens: int, threads: int, temperature: float) -> str:
    """One target, both drafts, every method that can be replayed."""
    rule = {"rule": "sample-match"} if engine == "libllama" and temperature > 0 else {}
    return yaml.safe_dump(
        {
            "name": "replay",
            "targets": {"target": target},
            "drafts": {"small": "bench:draft-small", "large": "bench:draft-large?quant=Q8_0"},
            "workloads": [
                {"source": "bench", "name": "text", "kinds": ["fact", "code", "zh"], "per_kind": per_kind},
                {
                    "source": "bench",
                    "name": "chat",
                    "kinds": ["reason", "edit"],
                    "per_kind": per_kind,
                    "format": "chat",
                },
            ],
            "arms": [
                {**rule, "draft": ["small", "large"], "gamma": list(GAMMAS)},
                {**rule, "draft": "small", "gamma": 8, "p_min": 0.6},
                {**rule, "draft": "small", "gamma": 8, "p_min": 0.6, "gamma_min": 2},
                {**rule, "method": "ngram-simple", "ngram_n": 3, "gamma": 6},
                {**rule, "method": "ngram-simple+draft-simple", "draft": "small", "ngram_n": 3, "gamma": 4},
            ],
            "design": {"blocks": 1, "warmup": "none", "disturbed": "keep"},
            "engine": {"kind": engine, "context": 1024, "threads": threads},
            "generation": {"max_tokens": tokens, "temperature": temperature},
        }
    )


def measure(folder: Path, text: str) -> None:
    """One run, as a user starts it; nothing where the folder has it."""
    if (folder / "certificate.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".yaml")
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "specmeter", "run", str(file), "--out", str(folder)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"specmeter run failed:\n{done.stderr}")


def read(folder: Path) -> tuple[RunData, list[Request]]:
    """What checks see of a run, and its requests."""
    with RunStore.open(folder, readonly=True) as run:
        return read_run_data(run), [request for request in run.requests() if request.reply is not None]


def contradicted(data: RunData) -> set[tuple[object, ...]]:
    """Requests with a finding."""
    found = (it for it in replay_differs(data) if isinstance(it, Finding))
    return {(it.arm_id, it.invocation, it.block, it.prompt_id) for it in found}


def by_arm(data: RunData) -> Iterator[tuple[str, int, int, int]]:
    """(arm, generations, equal to the unit, contradicted)."""
    total, equal = Counter[str](), Counter[str]()
    for request, steps in exact(data):
        counted = (request.row.draft_n or 0, request.row.draft_n_accepted or 0)
        total[request.row.arm_id] += 1
        equal[request.row.arm_id] += counted == (sum(it.drafted for it in steps), sum(it.accepted for it in steps))
    wrong = Counter(str(key[0]) for key in contradicted(data))
    for arm_id, count in total.items():
        yield arm_id, count, equal[arm_id], wrong[arm_id]


# --- what has to be contradicted -------------------------------------------------------------------------------------


def planted(data: RunData, requests: Sequence[Request]) -> Iterator[tuple[str, int, int]]:
    """(what was planted, generations, contradicted ones). Only arms that draft with `small` alone, without `p_min`."""
    arms = {
        arm.id: arm
        for arm in data.arms.values()
        if arm.methods == ("draft-simple",) and arm.draft == "small" and not arm.p_min
    }
    own = [it for it in requests if it.arm_id in arms]
    data = replace(data, arms=arms | {arm.id: arm for arm in data.arms.values() if not arm.speculates})
    yield "the other draft wrote", len(own), _count(_only(data, own, _otherwise(data, own, "large", _same)))
    chat = [it for it in own if data.prompts[it.prompt_id].format == "chat"]
    bare = _without_template(data)
    yield "the template forgotten", len(chat), _count(_only(data, chat, _otherwise(data, chat, "small", bare)))
    for what, drafted, accepted in (("one more accepted", 0, 1), ("one less accepted", 0, -1), ("one more", 1, 0)):
        fit = [it for it in own if 0 <= _accepted(it) + accepted <= _drafted(it) + drafted]
        yield f"counter off by one: {what}", len(fit), _count(_shifted(data, fit, drafted, accepted))


def _count(data: RunData) -> int:
    return len(contradicted(data))


def _only(data: RunData, requests: Sequence[Request], profiles: dict[ProfileKey, MatchProfile]) -> RunData:
    """The run with these requests alone, and these profiles."""
    keys = {(it.invocation, it.block, it.arm_id, it.prompt_id) for it in requests}
    return replace(data, profiles=profiles, requests=in_columns(it for it in data.requests if tuple(it.key) in keys))


def _same(request: Request, prompt: tuple[int, ...]) -> tuple[int, ...]:  # noqa: ARG001
    return prompt


def _without_template(data: RunData) -> PromptOf:
    with Model(Path(data.models["target"].path), vocabulary_only=True) as model:
        texts = {
            it.id: tuple(model.tokenize(it.text, add_special=True, parse_special=True)) for it in data.prompts.values()
        }
    return lambda request, _: texts[request.prompt_id]


def _otherwise(
    data: RunData, requests: Sequence[Request], draft: str, prompt_of: PromptOf
) -> dict[ProfileKey, MatchProfile]:
    """Profiles by another draft, or after another prompt, under the names of the right ones."""
    passages: dict[tuple[object, ...], Passage] = {}
    for request in requests:
        assert request.reply is not None
        prompt = prompt_of(request, data.prompt_tokens["target", request.prompt_id])
        passage = Passage(prompt_id=request.prompt_id, prompt=prompt, text=request.reply.token_ids)
        passages[passage.prompt_id, passage.text] = passage
    small = data.models["small"].sha256
    ends = next(key.drafts_ends for key in data.profiles)
    made = profile_texts(
        data.models[draft], data.experiment.expand()[0].engine, tuple(passages.values()), drafts_ends=ends
    )
    right = {(it.prompt_id, key.text_digest): key for key, it in data.profiles.items() if key.draft_sha256 == small}
    return {right[it.prompt_id, it.text_digest]: it.model_copy(update={"draft_sha256": small}) for it in made}


def _drafted(request: Request) -> int:
    return (request.reply.timings.draft_n or 0) if request.reply else 0


def _accepted(request: Request) -> int:
    return (request.reply.timings.draft_n_accepted or 0) if request.reply else 0


def _shifted(data: RunData, requests: Sequence[Request], drafted: int, accepted: int) -> RunData:
    """Counters off by one, and no steps on record that would give it away."""
    keys = {(it.invocation, it.block, it.arm_id, it.prompt_id) for it in requests}
    changed = [
        replace(
            it,
            row=it.row._replace(
                draft_n=(it.row.draft_n or 0) + drafted,
                draft_n_accepted=(it.row.draft_n_accepted or 0) + accepted,
                step_n=0,
            ),
            steps=b"",
        )
        for it in data.requests
        if tuple(it.key) in keys
    ]
    return replace(data, requests=changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--engines", nargs="+", default=["embedded", "libllama"])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--per-kind", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = options.folder or Path(scratch)
        sums, sharpness = Counter[str](), dict[str, Counter[str]]()
        print("| engine | target | arm | generations | equal to the unit | near ties | contradicted |")
        print("|---|---|---|---:|---:|---:|---:|")
        for engine in options.engines:
            for target in options.targets:
                name = f"{engine}-" + "".join(char if char.isalnum() else "-" for char in target)
                order = (options.per_kind, options.tokens, options.threads, options.temperature)
                measure(folder / name, experiment(engine, target, *order))
                data, requests = read(folder / name)
                for arm_id, count, equal, wrong in by_arm(data):
                    arm = arm_id.removeprefix("target/")
                    ties = count - equal - wrong
                    print(f"| {engine} | {target} | {arm} | {count} | {equal} | {ties} | {wrong} |", flush=True)
                    sums.update(count=count, equal=equal, ties=ties, wrong=wrong)
                for what, count, found in planted(data, requests):
                    sharpness.setdefault(what, Counter()).update(count=count, found=found)
        print(f"| all | | | {sums['count']} | {sums['equal']} | {sums['ties']} | {sums['wrong']} |\n")
        print("| planted | generations | contradicted |\n|---|---:|---:|")
        for what, it in sharpness.items():
            print(f"| {what} | {it['count']} | {it['found']} |")


if __name__ == "__main__":
    main()
