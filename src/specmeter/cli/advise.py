"""The command `specmeter advise`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from specmeter.advise.advice import Advice, AdviceQuestion, Goal
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
    Budget,
    GroupedCommand,
    addresses,
    draft_option,
    set_by,
    setting_options,
    url_options,
)
from specmeter.cli.streams import stop_like_ctrl_c
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.models.reference import Fetching
from specmeter.show import advice_report
from specmeter.show.terminal.advice import AdviceProgress, print_outline
from specmeter.show.terminal.console import Screen, errors, output, say_json
from specmeter.show.terminal.progress import model_progress
from specmeter.show.terminal.report import print_report


class _Clients(click.ParamType[tuple[int, ...]]):
    """Numbers of clients."""

    name = "N,N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:  # noqa: ARG002
        if isinstance(value, tuple):
            return cast("tuple[int, ...]", value)
        try:
            return tuple(int(it) for it in str(value).split(",")) if value else ()
        except ValueError:
            raise UsageError(
                f"--clients {str(value)[:80]}: is not a list of whole numbers", fix="write --clients 1,2,4,8"
            ) from None


_MIN_S = 10.0


class _Advise(GroupedCommand):
    """The lengths of drafts are what is found out, so nothing sets them."""

    def instead_of_drafting(self, option: str) -> str | None:
        if option.startswith(("--draft-", "--spec-", "--gamma", "--ngram", "--method")):
            return "advise finds methods and lengths itself; name drafts with --draft, or arms with --from FILE"
        return None


_GROUPS = {
    "What is asked": ("model", "goal", "budget", "clients", "program", "again"),
    "What is tried": ("drafts", "find", "wide", "from_file", "overrides"),
    "Servers that run": ("urls", "baseline_url"),
    "On what text": ("prompts", "kinds", "max_tokens"),
    **ENGINE_GROUP,
    "Where it goes": ("out", "new"),
    "What is shown": ("dry_run", "quiet", "details", "as_json"),
}


@click.command(name="advise", cls=_Advise, groups=_GROUPS)
@click.argument("target", required=False)
@click.option("-m", "--model", "model", metavar="MODEL", help="The target; the same as TARGET.")
@draft_option("A draft model to try; repeatable. Default: those found on this machine that can work.")
@click.option(
    "--find/--no-find",
    "find",
    default=None,
    help="Look for draft models beside the target and in the folders of llama.cpp, LM Studio, Ollama and Hugging Face. "
    "Default: where none is named.",
)
@click.option(
    "--prompts",
    multiple=True,
    metavar="FILE",
    help="Your prompts: .txt with one per line, .csv with a header, .jsonl or .json (also chats); repeatable.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only text of this kind (fact, code, reason, zh, edit), of the prompts that come with specmeter; repeatable.",
)
@click.option(
    "--budget",
    type=Budget(),
    help="How long it may take. Default: 5m, or longer for a slow model; with --clients for each of them.",
)
@click.option(
    "--goal",
    type=click.Choice(["throughput", "latency"]),
    default="throughput",
    show_default=True,
    help="throughput: tokens per second while it writes. latency: time of the whole answer, with its prompt.",
)
@click.option(
    "--clients",
    type=_Clients(),
    default="",
    help="Numbers of clients that ask at once, such as 1,2,4,8: what is best at each of them, by total tokens per "
    "second.",
)
@click.option(
    "--for",
    "program",
    metavar="PROGRAM",
    default="llama-server",
    show_default=True,
    help="Program to write the line for as well: llama-cli, koboldcpp, vllm, tensorrt-llm, sglang, mlx-lm, lm-studio.",
)
@click.option(
    "--from",
    "from_file",
    metavar="FILE",
    help="Choose among the arms of this experiment instead, at its prompts and settings.",
)
@url_options("Choose among servers that already run")
@click.option(
    "--again",
    is_flag=False,
    flag_value="",
    metavar="[ADVICE]",
    help="Does an older advice still hold on this machine and build? Its folder; without one, the latest.",
)
@click.option("--wide", is_flag=True, help="Try threads, flash attention and types of the KV cache first.")
@setting_options(repeats=False)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change any other value; repeatable.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the advice; an unfinished one in it is resumed. Default: a new one under specmeter-runs/.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done, and what it needs.")
@click.option("--new", is_flag=True, help="Start anew even where the same is unfinished.")
@click.option("--offline", is_flag=True, help="Use only models already on this machine.")
@click.option("--quiet", is_flag=True, help="No progress; only the answer, and errors.")
@click.option("--details", is_flag=True, help="Print what became of every configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print the advice (or the dry run) as JSON.")
def command(
    target: str | None,
    model: str | None,
    drafts: tuple[str, ...],
    find: bool | None,
    prompts: tuple[str, ...],
    kinds: tuple[str, ...],
    budget: float | None,
    goal: Goal,
    clients: tuple[int, ...],
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
    """Find the fastest way to serve a model here: which draft, how many tokens, or no speculation at all.

    TARGET is a GGUF file, hf:OWNER/REPO/FILE.gguf or bench:NAME. advise predicts the speed of hundreds of
    configurations from answers that the model writes without speculation, measures the most promising ones on whole
    answers to other prompts, and says which one to use, with the line to paste, or that none is faster.

    With --clients, each number of clients is a question of its own: the answer is a schedule, with the line of each and
    the crossover. It may take five minutes for each of them.

    Ctrl-C at any time: the best answer so far is printed, and the same command goes on.

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
    Exit codes: 0 advised (to speculate, or not to), 1 a number of it is invalid, or with --again: it does not hold any
    more, 2 the question, a model or the budget cannot be used, 3 the engine failed, 4 undecided, 130 interrupted (run
    again to go on).
    """
    check_program(program)
    if again is not None:
        given = [target, model, drafts, find, prompts, kinds, clients, from_file, wide, overrides, dry_run]
        given += [urls, baseline_url]
        given += settings.values()
        if any(it not in (None, (), False) for it in given):
            raise UsageError(
                "--again: asks what that advice asked, and nothing else goes with it", fix="leave the other options out"
            )
        return _told(
            *_again(again, out, Fetching(offline), errors(quiet=quiet)), program, details=details, as_json=as_json
        )
    if settings["binary"] is not None:
        settings["binary"] = str(Path(settings["binary"]).absolute())
    if budget is not None and budget < _MIN_S:
        raise UsageError(
            f"--budget {budget:g}s: too short to compare anything, even with the smallest models",
            fix=f"give {_MIN_S:.0f}s or more; most models take minutes (default: 5m)",
        )
    if target is not None and model is not None:
        raise UsageError(f"two targets are named, {target} and {model}", fix="name one")
    asked = ask(
        target or model or "",
        drafts=drafts,
        find_drafts=find,
        prompts=prompts,
        kinds=kinds,
        from_file=from_file,
        urls=_servers(urls, baseline_url),
        budget_s=0 if budget is None else budget,  # 0: as long as the model needs
        goal=goal,
        clients=clients,
        wide=wide,
        settings=(*set_by(settings), *overrides),
    )
    if dry_run:
        if out is not None and out.exists():
            raise UsageError(f"--dry-run writes nothing, but --out {out} exists already", fix="leave one of them out")
        return _dry_run(asked, offline=offline, as_json=as_json)
    return _told(
        *_advise(asked, out, Fetching(offline), errors(quiet=quiet), new=new), program, details=details, as_json=as_json
    )


def _servers(urls: Sequence[str], baseline_url: str | None) -> list[str]:
    """Servers to choose among, the one that decodes plainly first; none where none is named. Raises `UsageError`."""
    if not urls and baseline_url is None:
        return []
    if baseline_url is None:
        raise UsageError(
            "--url: advice compares with plain decoding, and no server is named that decodes plainly; a server drafts "
            "as it was started, since none takes speculation from a request",
            fix="start the same model once more without speculation and name it with --baseline-url; `specmeter run "
            "--url URL` measures one server alone",
        )
    if not urls:
        raise UsageError("--baseline-url: there is nothing to compare with it", fix="name the other servers by --url")
    return addresses([*addresses([baseline_url], "--baseline-url"), *urls])


def _advise(
    asked: AdviceQuestion, out: Path | None, fetching: Fetching, screen: Screen, *, new: bool
) -> tuple[Advice | Schedule, Path]:
    """What is advised, and the folder that it lies in."""
    with model_progress(screen) as progress:
        asked, candidates, grid = ready(asked, replace(fetching, progress=progress))
    folder, resumed = choose_folder(asked, out=out, new=new)
    screen.say(f"{'going on in' if resumed else 'measuring into'} {folder}", wrap=False)
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
    from specmeter.advise.loads import again_loads

    folder, into, resumed = choose_again(before or None, out=out)
    asked = read_advised(folder, examine=False).asked
    screen.say(f"{folder} again, {'going on in' if resumed else 'measuring into'} {into}", wrap=False)
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
