"""The command `specmeter advise`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specmeter.advise.advice import MAX_CLIENTS, Advice, AdviceQuestion, Goal
from specmeter.advise.advise import advise
from specmeter.advise.budget import ready, refuse_small_budget, with_budget
from specmeter.advise.candidates import find_candidates
from specmeter.advise.export_commands import MEASURED, advice_for, also_for, check_program, elsewhere
from specmeter.advise.folder import choose_again, choose_folder
from specmeter.advise.grid import grid_of
from specmeter.advise.question import ask
from specmeter.advise.schedule import Schedule, amend_schedule, read_advised
from specmeter.advise.verify_advice import amend
from specmeter.cli.settings import (
    ENGINE_GROUP,
    MODEL_HELP,
    OUT_HELP,
    Budget,
    GroupedCommand,
    Heading,
    addresses,
    draft_option,
    dry_run_option,
    hub_option,
    json_option,
    naming_options,
    new_option,
    offline_option,
    prompts_option,
    quiet_option,
    refuse_hub,
    sessions_option,
    set_by,
    setting_options,
    url_options,
)
from specmeter.cli.streams import stop_like_ctrl_c
from specmeter.cli.usage import Number, Numbers
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.models.reference import Fetching
from specmeter.show import advice_report
from specmeter.show.terminal.advice import AdviceProgress, print_outline
from specmeter.show.terminal.console import Screen, errors, output, say_json
from specmeter.show.terminal.progress import model_progress
from specmeter.show.terminal.report import print_report

_MIN_S = 10.0


class _Advise(GroupedCommand):
    """It finds draft lengths, so no option sets them."""

    def instead_of_drafting(self, option: str) -> str | None:
        if option.startswith(("--draft-", "--spec-", "--gamma", "--ngram", "--method")):
            return "leave it out: advise finds methods and draft lengths itself; `specmeter run` measures given ones"
        return None


_GROUPS = {
    Heading.QUESTION: ("model", "goal", "budget", "clients", "program", "again"),
    Heading.CANDIDATES: ("drafts", "find", "wide", "from_file", "overrides"),
    Heading.SERVERS: ("urls", "baseline_url"),
    Heading.PROMPTS: ("prompts", "sessions", "kinds"),
    Heading.AMOUNT: ("max_tokens",),
    **ENGINE_GROUP,
    Heading.FOLDER: ("out", "new"),
    Heading.DISPLAY: ("dry_run", "quiet", "details", "as_json"),
}


@click.command(name="advise", cls=_Advise, groups=_GROUPS)
@click.argument("target", required=False)
@click.option("-m", "--model", "model", metavar="MODEL", help=MODEL_HELP)
@hub_option
@draft_option("A draft model to try; repeatable. Default: all on this machine whose vocabulary matches.")
@click.option(
    "--find/--no-find",
    "find",
    default=None,
    help="Look for draft models next to TARGET and in the folders of llama.cpp, LM Studio, Ollama and Hugging Face. "
    "Default: on, unless --draft is given.",
)
@prompts_option
@sessions_option
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only bundled prompts of this type: fact, code, reason, zh or edit; repeatable.",
)
@click.option(
    "--budget",
    type=Budget(),
    help="Time limit for the whole search; with --clients, for each number. Default: 5m, longer for a slow model.",
)
@click.option(
    "--goal",
    type=click.Choice(["throughput", "latency"]),
    default="throughput",
    show_default=True,
    help="throughput: tokens per second of decoding. latency: time from the request to the last token.",
)
@click.option(
    "--clients",
    type=Numbers(Number(1, MAX_CLIENTS), "1,2,4,8"),
    help="Numbers of clients, such as 1,2,4,8: find the best for each, by total tokens per second.",
)
@click.option(
    "--for",
    "program",
    metavar="PROGRAM",
    default="llama-server",
    help="Besides llama-server, print the command for llama-cli, koboldcpp, vllm, tensorrt-llm, sglang, mlx-lm or "
    "lm-studio.",
)
@click.option(
    "--from",
    "from_file",
    metavar="FILE",
    help="Choose among the configurations of an experiment file (YAML), with its prompts and settings.",
)
@url_options("Choose among running servers")
@click.option(
    "--again",
    is_flag=False,
    flag_value="",
    metavar="[FOLDER]",
    help="Check whether an earlier advice still holds on this machine and build. Default: the latest.",
)
@click.option("--wide", is_flag=True, help="First tune threads, flash attention and KV cache types.")
@setting_options(repeats=False)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set any key of the experiment file (`run --schema` lists them); repeatable.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help=OUT_HELP,
)
@dry_run_option
@new_option
@offline_option
@quiet_option
@click.option("--details", is_flag=True, help="Also list every configuration, measured or not.")
@json_option
def command(
    target: str | None,
    model: str | None,
    hub: tuple[str, ...],
    drafts: tuple[str, ...],
    find: bool | None,
    prompts: tuple[str, ...],
    sessions: tuple[str, ...],
    kinds: tuple[str, ...],
    budget: float | None,
    goal: Goal,
    clients: tuple[int, ...] | None,
    program: str,
    from_file: str | None,
    urls: tuple[str, ...],
    baseline_url: str | None,
    again: str | None,
    wide: bool,
    overrides: tuple[str, ...],
    out: Path | None,
    dry_run: bool,
    new: bool,
    offline: bool,
    quiet: bool,
    details: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Find the fastest flags for a model on this machine: which draft model, which draft length, or no speculation.

    TARGET is a GGUF file, hf:OWNER/REPO/FILE.gguf or bench:NAME. advise predicts the speed of hundreds of
    configurations, measures the most promising ones against no speculation, and confirms the winner on other prompts.
    It prints the speedup with a 95% interval and the command to paste, or says that no speculation is best.

    With --clients, each number of clients is measured separately. You get a table with the best command for each, and
    the number of clients at which speculation stops or starts to pay.

    Ctrl-C prints the best answer so far; the same command resumes.

    \b
    Examples:
      specmeter advise big.gguf
      specmeter advise big.gguf --draft small.gguf --draft tiny.gguf --budget 20m
      specmeter advise big.gguf --prompts mine.txt --goal latency
      specmeter advise big.gguf --kind code --for vllm
      specmeter advise big.gguf --draft small.gguf --clients 1,2,4,8
      specmeter advise --from mine.yaml
      specmeter advise --baseline-url http://127.0.0.1:8080 --url http://127.0.0.1:8081 --url http://127.0.0.1:8082
      specmeter advise big.gguf --dry-run
      specmeter advise --again

    \b
    Exit codes: 0 advised (also if not to speculate), 1 a number is invalid, or (--again) the advice no longer holds,
    2 wrong input, 3 the engine failed, 4 undecided, 130 interrupted (the same command resumes).
    """
    refuse_hub(hub)
    check_program(program)
    if again is not None:
        given = [target, model, drafts, find, prompts, sessions, kinds, clients, from_file, wide, overrides, dry_run]
        given += [urls, baseline_url]
        given += settings.values()
        if any(it not in (None, (), False) for it in given):
            raise UsageError("--again: repeats the question of the earlier advice", fix="leave the other options out")
        return _told(
            *_again(again, out, Fetching(offline), errors(quiet=quiet)), program, details=details, as_json=as_json
        )
    if settings["binary"] is not None:
        settings["binary"] = str(Path(settings["binary"]).absolute())
    if budget is not None and budget < _MIN_S:
        raise UsageError(
            f"--budget {budget:g}s: too short for any model",
            fix=f"give {_MIN_S:.0f}s or more; most models need minutes (default: 5m)",
        )
    if target is not None and model is not None:
        raise UsageError(f"advise: two target models given, {target} and {model}", fix="give one")
    with naming_options(settings, overrides):
        asked = ask(
            target or model or "",
            drafts=drafts,
            find_drafts=find,
            prompts=prompts,
            sessions=sessions,
            kinds=kinds,
            from_file=from_file,
            urls=_servers(urls, baseline_url),
            budget_s=0 if budget is None else budget,  # 0: as long as the model needs
            goal=goal,
            clients=clients or (),
            wide=wide,
            settings=(*set_by(settings), *overrides),
        )
    if dry_run:
        if out is not None and out.exists():
            raise UsageError(f"--out {out}: exists, and --dry-run writes nothing", fix="leave one of them out")
        return _dry_run(asked, offline=offline, as_json=as_json)
    return _told(
        *_advise(asked, out, Fetching(offline), errors(quiet=quiet), new=new), program, details=details, as_json=as_json
    )


def _servers(urls: Sequence[str], baseline_url: str | None) -> list[str]:
    """Servers to choose among, the one without speculation first; none if none is given. Raises `UsageError`."""
    if not urls and baseline_url is None:
        return []
    if baseline_url is None:
        raise UsageError(
            "--url: no server without speculation to compare with",
            fix="start the same model without speculation too, and add it with --baseline-url; "
            "`specmeter run --url URL` measures one server alone",
        )
    if not urls:
        raise UsageError("--baseline-url: no other server to compare with", fix="add the other servers with --url")
    return addresses([*addresses([baseline_url], "--baseline-url"), *urls])


def _advise(
    asked: AdviceQuestion, out: Path | None, fetching: Fetching, screen: Screen, *, new: bool
) -> tuple[Advice | Schedule, Path]:
    """What is advised, and the folder that it lies in."""
    with model_progress(screen) as progress:
        asked, candidates, grid = ready(asked, replace(fetching, progress=progress))
    folder, resumed = choose_folder(asked, out=out, new=new)
    screen.say(f"{'resuming' if resumed else 'measuring into'} {folder}", wrap=False)
    stop_like_ctrl_c()
    observer = AdviceProgress(screen, asked.budget_s)
    with observer.shown():
        if asked.clients:
            from specmeter.advise.loads import advise_loads

            return advise_loads(asked, candidates, folder, observer, fetching=fetching), folder
        return advise(asked, grid, folder, observer, left_out=candidates.left_out, fetching=fetching), folder


def _again(before: str, out: Path | None, fetching: Fetching, screen: Screen) -> tuple[Advice | Schedule, Path]:
    """What is advised now, and the folder that it lies in."""
    from specmeter.advise.again import again as measure_again
    from specmeter.advise.again import decided
    from specmeter.advise.loads import again_loads, decided_loads

    folder, into, resumed = choose_again(before or None, out=out)
    asked = read_advised(folder, examine=False).asked
    (decided_loads if asked.clients else decided)(folder)  # refuses an undecided one before anything is said
    screen.say(f"checking {folder}, {'resuming' if resumed else 'measuring into'} {into}", wrap=False)
    stop_like_ctrl_c()
    observer = AdviceProgress(screen, asked.budget_s)
    with observer.shown():
        if asked.clients:
            return again_loads(folder, into, observer, fetching=fetching), into
        return measure_again(folder, into, observer, fetching=fetching), into


def _told(found: Advice | Schedule, folder: Path, program: str, *, details: bool, as_json: bool) -> int:
    """Print the advice, or the schedule; the exit code."""
    if isinstance(found, Schedule):
        from specmeter.show import schedule_report

        if program != MEASURED:
            found = also_for(found, program)
            amend_schedule(found, folder)
        print_report(schedule_report.report(found, folder), as_json=as_json, details=details)
        return _exit_code(found.advices)
    if program != MEASURED:
        found = advice_for(found, program)
        amend(folder, found.programs)
    print_report(advice_report.report(found, folder), as_json=as_json, details=details)
    if program in (told := elsewhere(found)):
        notes = told[program].notes
        errors().say_all(Message("scheduled.note_of", program=program, told=note) for note in notes)
    return _exit_code([found])


def _exit_code(advices: Sequence[Advice]) -> int:
    if any(it.why_undecided == "interrupted" for it in advices):
        return 130
    if any(it.verdict == "invalid" or (it.again and it.again.holds == "does-not-hold") for it in advices):
        return 1
    return 4 if any(it.decision == "undecided" for it in advices) else 0


def _dry_run(asked: AdviceQuestion, *, offline: bool, as_json: bool) -> int:
    from specmeter.advise.outline import outline

    candidates = find_candidates(asked, fetching=None)
    grid = grid_of(asked, candidates)
    asked = with_budget(asked, grid, offline=offline)
    refuse_small_budget(asked, grid, offline=offline)
    found = outline(asked, candidates, grid, offline=offline)
    if as_json:
        say_json(found.model_dump(mode="json"))
    else:
        print_outline(output(), found)
    return 0
