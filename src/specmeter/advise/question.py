"""The question that an advice answers; options that do not go together are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import MAX_CLIENTS, MAX_LOADS, AdviceQuestion
from specmeter.engines.url.spec import ANY
from specmeter.errors import UsageError
from specmeter.experiments.described import LOOKUP, refuse_bad_prompts, refuse_engine
from specmeter.experiments.file import bundled, load
from specmeter.models.reference import absolute
from specmeter.workloads.sessions import session_path
from specmeter.workloads.spec import ALL_KINDS

if TYPE_CHECKING:
    from specmeter.advise.advice import Goal


def ask(
    target: str = "",
    *,
    drafts: Sequence[str] = (),
    find_drafts: bool | None = None,
    prompts: Sequence[str] = (),
    sessions: Sequence[str] = (),
    kinds: Sequence[str] = (),
    from_file: str | None = None,
    urls: Sequence[str] = (),
    budget_s: float,
    goal: Goal = "throughput",
    clients: Sequence[int] = (),
    wide: bool = False,
    max_tokens: int | None = None,
    settings: Sequence[str] = (),
) -> AdviceQuestion:
    """The question, with paths from the root. Drafts are looked for where `find_drafts`, or none is named; of servers
    that run (`urls`) the first decodes without speculation.

    Raises `UsageError` for what does not go together, and `ModelError` for what is not a reference.
    """
    if from_file is not None:
        options = {
            "TARGET": target,
            "--draft": drafts,
            "--find": find_drafts is not None,
            "--prompts": prompts,
            "--sessions": sessions,
            "--kind": kinds,
            "--wide": wide,
            "--url": urls,
        }
        if named := [option for option, value in options.items() if value]:
            raise UsageError(
                f"{', '.join(named)}: already set by {from_file}",
                fix="leave --from out, or change the value in the file with --set",
            )
    elif urls:
        options = {"--draft": drafts, "--find": find_drafts, "--wide": wide}
        if named := [option for option, value in options.items() if value]:
            raise UsageError(
                f"{', '.join(named)}: a running server's drafting cannot be changed",
                fix="leave the option out, or restart the server with it",
            )
    elif not target:
        raise UsageError("advise: no target model given", fix="give a GGUF file: `specmeter advise big.gguf`")
    if sessions and (prompts or kinds):
        raise UsageError("--sessions: has prompts of its own", fix="leave --prompts and --kind out")
    if prompts and kinds:
        raise UsageError(
            "--kind: only selects among specmeter's own prompts, but --prompts gives yours", fix="leave one of them out"
        )
    if unknown := [it for it in kinds if it not in ALL_KINDS]:
        raise UsageError(f"--kind {unknown[0][:80]}: no such prompt type", fix=f"use one of {', '.join(ALL_KINDS)}")
    refuse_bad_prompts(prompts)
    if clients:
        _refuse_clients(clients, goal, wide=wide)
    if target and not urls:
        references = [target, *drafts]
        described = {"target": absolute(target), "arms": [{"method": LOOKUP}]}
        refuse_engine(load(described, settings).experiment.engine.kind, references)
    return AdviceQuestion(
        target=(target or ANY) if urls else absolute(target) if target else "",
        urls=tuple(urls),
        drafts=tuple(absolute(it) for it in dict.fromkeys(drafts)),
        find_drafts=not (drafts or urls) if find_drafts is None else find_drafts,
        prompts=tuple(str(Path(it).absolute()) for it in prompts),
        sessions=tuple(str(session_path(it, Path().absolute())) for it in sessions),
        kinds=tuple(dict.fromkeys(kinds)),
        from_file=from_file if from_file is None or from_file in bundled() else str(Path(from_file).absolute()),
        budget_s=budget_s,
        goal="latency" if sessions else goal,
        clients=tuple(sorted(clients)),
        wide=wide,
        max_tokens=max_tokens,
        settings=tuple(settings),
    )


def _refuse_clients(clients: Sequence[int], goal: Goal, *, wide: bool) -> None:
    """Raise `UsageError` for numbers of clients that cannot be asked about, and for what does not go with them."""
    if out := [it for it in clients if not 1 <= it <= MAX_CLIENTS]:
        raise UsageError(f"--clients {out[0]}: not between 1 and {MAX_CLIENTS}", fix="write --clients 1,2,4,8")
    if len(set(clients)) < len(clients) or len(clients) > MAX_LOADS:
        raise UsageError(
            f"--clients: {', '.join(map(str, clients[:20]))}: a number is repeated, or there are more than {MAX_LOADS}",
            fix="write --clients 1,2,4,8",
        )
    if goal != "throughput":
        raise UsageError(
            f"--goal {goal}: does not work with --clients, which compares total tokens per second",
            fix="leave --goal out; `specmeter run --clients` shows latencies for each number of clients",
        )
    if wide:
        raise UsageError(
            "--wide: does not work with --clients",
            fix="find the settings with `specmeter advise --wide`, then give them with --clients",
        )
