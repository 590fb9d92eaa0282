"""Advices of every sort, made by hand: what a search would have found."""

from __future__ import annotations

from typing import Any

from specmeter.advise.advice import (
    Advice,
    AdviceOfKind,
    AdviceQuestion,
    Again,
    ArmOutcome,
    Changed,
    LeftOutDraft,
    Stage,
    StageRun,
)
from specmeter.advise.schedule import Schedule
from specmeter.messages import Message
from specmeter.numbers.stats import STUDENT
from specmeter.record import Arm, Estimate, ModelIdentity

PLAIN = Arm(id="dense/none", target="dense", role="baseline")
LENGTHS = (1, 2, 3, 4, 6, 8)
HOSTILE = "\x1b[2J<script>alert(1)</script>\u202e[red]|`x`" + "a" * 50


def est(point: float, half: float = 0.04, n: int = 4) -> Estimate:
    """A speedup with an interval of that relative half width."""
    low, high = point / (1 + half), point * (1 + half)
    return Estimate(point=point, low=low, high=high, n=n, of="blocks", unit="x", method="made up")


def drafts(gamma: int, draft: str = "small", **more: Any) -> Arm:
    """An arm with a draft model."""
    return Arm(
        id=f"dense/draft-simple/{draft}/g{gamma}" + "".join(f"/{key}{value}" for key, value in more.items()),
        target="dense",
        methods=("draft-simple",),
        draft=draft,
        gamma=gamma,
        baseline_id=PLAIN.id,
        **more,
    )


def model(name: str, **more: Any) -> ModelIdentity:
    """A model file."""
    facts: dict[str, Any] = {"reference": f"/models/{name}.gguf", "path": f"/models/{name}.gguf", "origin": "path"}
    return ModelIdentity.model_validate({"name": name, "sha256": "a" * 64, "size_bytes": 10**8} | facts | more)


NGRAM = Arm(
    id="dense/ngram-simple/g8", target="dense", methods=("ngram-simple",), gamma=8, ngram_n=3, baseline_id=PLAIN.id
)
GRID = (*(drafts(gamma) for gamma in LENGTHS), drafts(16, p_min=0.75), NGRAM)
BEST = drafts(4)


def stage(name: Stage, **more: Any) -> StageRun:
    """A stage that was carried out."""
    facts: dict[str, Any] = {"verdict": "valid", "certificate_sha256": "b" * 64, "seconds": 61.0, "blocks": 4}
    return StageRun.model_validate({"stage": name, "folder": name, "sessions": 8, "prompts": 4} | facts | more)


OUTCOMES = (
    ArmOutcome(
        arm_id=BEST.id,
        predicted=est(1.95, 0.1),
        raced=est(1.93),
        confirmed=est(1.92),
        by_kind={"code": est(2.2), "chat": est(1.4)},
        code="winner",
        stage="confirm",
        blocks=4,
    ),
    ArmOutcome(
        arm_id=drafts(6).id,
        predicted=est(1.93, 0.1),
        raced=est(1.92),
        by_kind={"code": est(2.3), "chat": est(1.3)},
        code="equivalent",
        stage="race",
        than=BEST.id,
        ratio=est(0.99, 0.01),
        blocks=4,
    ),
    ArmOutcome(
        arm_id=drafts(3).id,
        predicted=est(1.88, 0.1),
        raced=est(1.7),
        by_kind={"code": est(2.0), "chat": est(1.35)},
        code="slower",
        stage="race",
        than=BEST.id,
        ratio=est(0.91, 0.02),
        blocks=2,
    ),
    ArmOutcome(
        arm_id=drafts(8).id,
        predicted=est(1.80, 0.1),
        by_kind={"code": est(2.2), "chat": est(1.1)},
        code="as-good",
        stage="screen",
        than=drafts(6).id,
        ratio=est(0.99, 0.02),
    ),
    ArmOutcome(
        arm_id=drafts(2).id,
        predicted=est(1.60, 0.05),
        by_kind={"code": est(1.7), "chat": est(1.3)},
        code="cannot-win",
        stage="screen",
        than=BEST.id,
        ratio=est(0.82, 0.03),
    ),
    ArmOutcome(arm_id=drafts(1).id, predicted=est(1.4, 0.05), code="no-room", stage="screen"),
    ArmOutcome(arm_id=GRID[6].id, code="failed", stage="race", why="the server ended with exit code 1"),
    ArmOutcome(arm_id=NGRAM.id, predicted=est(0.9, 0.02), code="cannot-gain", stage="screen"),
)


def confirmed(**more: Any) -> Advice:
    """An advice to speculate, confirmed on other prompts; `more` changes it."""
    facts: dict[str, Any] = {
        "asked": AdviceQuestion(target="/models/dense.gguf", drafts=("/models/small.gguf",), kinds=("code", "chat")),
        "made_at": 1_790_000_000.0,
        "finished": True,
        "decision": "speculate",
        "basis": "confirmed",
        "arm": BEST,
        "speedup": est(1.92),
        "verdict": "valid",
        "tau": est(3.1),
        "target": model("dense"),
        "draft": model("small"),
        "baseline": PLAIN,
        "command": ("llama-server", "-m", "/models/my dense.gguf", "-md", "/models/small.gguf"),
        "arms": (PLAIN, *GRID),
        "outcomes": OUTCOMES,
        "stages": (stage("screen", blocks=1), stage("race"), stage("confirm")),
        "seconds": 200.0,
    }
    return Advice(**(facts | more))


def off(**more: Any) -> Advice:
    """Nothing helps, and the best other arm was confirmed not to."""
    outcomes = (
        ArmOutcome(
            arm_id=BEST.id,
            predicted=est(0.95),
            raced=est(0.94),
            confirmed=est(0.93, 0.03),
            code="winner",
            stage="confirm",
            blocks=4,
        ),
        ArmOutcome(arm_id=NGRAM.id, predicted=est(0.9, 0.02), code="cannot-gain", stage="screen"),
    )
    facts: dict[str, Any] = {"decision": "off", "arm": None, "speedup": est(0.93, 0.03), "speedup_of": BEST.id}
    return confirmed(**(facts | {"outcomes": outcomes, "tau": est(1.8)} | more))


def undecided(why: str, **more: Any) -> Advice:
    """Not decided, with the best so far as the race found it."""
    facts: dict[str, Any] = {"decision": "undecided", "basis": "raced", "speedup": est(1.03, 0.1)}
    facts["command"] = ("llama-server", "-m", "/models/my dense.gguf")
    return confirmed(**(facts | {"why_undecided": why, "finished": why != "interrupted"} | more))


def predicted(**more: Any) -> Advice:
    """The first answer, of the screen alone."""
    outcomes = tuple(it.model_copy(update={"raced": None, "confirmed": None, "code": "open"}) for it in OUTCOMES[:5])
    facts: dict[str, Any] = {"basis": "predicted", "speedup": est(1.95, 0.1), "verdict": None, "finished": False}
    return confirmed(**(facts | {"outcomes": outcomes, "stages": (stage("screen", blocks=1),)} | more))


def per_kind(**more: Any) -> Advice:
    """Kinds of text differ in what is best."""
    kinds = (
        AdviceOfKind(kind="code", decision="speculate", arm=drafts(8), speedup=est(1.9)),
        AdviceOfKind(kind="chat", decision="off", arm=None, speedup=None),
        AdviceOfKind(kind="zh", decision="undecided", arm=drafts(2), speedup=est(1.01, 0.1)),
    )
    return confirmed(**({"by_kind": kinds} | more))


def repeated(holds: str, **more: Any) -> Advice:
    """An earlier advice, held against today."""
    changed = (Changed(what="engine", before="b4567", now="b5678"),)
    again = Again.model_validate({"holds": holds, "before": est(1.9), "made_at": 1_780_000_000.0, "changed": changed})
    return confirmed(**({"again": again, "again_of": "c" * 64, "outcomes": OUTCOMES[:1]} | more))


def hostile() -> Advice:
    """Of a stranger who tries everything."""
    arm = drafts(4).model_copy(update={"id": HOSTILE, "draft": HOSTILE, "target": HOSTILE})
    outcome = OUTCOMES[0].model_copy(update={"arm_id": HOSTILE})
    failed = ArmOutcome(arm_id=f"{HOSTILE}2", code="failed", stage="race", why=HOSTILE, than=HOSTILE)
    return confirmed(
        arm=arm,
        arms=(PLAIN, arm),
        outcomes=(outcome, failed),
        target=model(HOSTILE),
        command=(HOSTILE, "--x"),
        programs=(HOSTILE,),
        by_kind=(AdviceOfKind(kind=HOSTILE, decision="speculate", arm=arm, speedup=est(1.9)),),
        left_out=(LeftOutDraft(reference=HOSTILE, why=Message(HOSTILE, text=HOSTILE)),),
        made_at=1e300,
        seconds=1e9,
        why_undecided=HOSTILE,
        again=Again(
            holds="holds", before=None, made_at=-1e300, changed=(Changed(what="host", before=HOSTILE, now=HOSTILE),)
        ),
    )


ALL: dict[str, Advice] = {
    "confirmed": confirmed(),
    "same-prompts": confirmed(held_out=False),
    "elsewhere": confirmed(command=("llama-server",), programs=("vllm",)),
    "over-prompts": confirmed(over_prompts=est(1.9, 0.2, 8), rival=drafts(6).id),
    "here": confirmed(decision="on-these-prompts", over_prompts=est(1.08, 0.3)),
    "here-few": confirmed(decision="on-these-prompts"),
    "no-difference": off(decision="no-difference", speedup=est(1.0, 0.01)),
    "suspect": confirmed(verdict="suspect"),
    "invalid": undecided("invalid", verdict="invalid", basis="confirmed"),
    "off": off(),
    "nothing": off(speedup=None, speedup_of=None, outcomes=(), tau=None),
    **{why: undecided(why) for why in ("interrupted", "budget", "too-noisy")},
    "not-confirmed": undecided("not-confirmed", basis="confirmed"),
    "at-once": undecided(
        "interrupted", arm=None, speedup=None, outcomes=(), stages=(), basis="predicted", verdict=None
    ),
    "predicted": predicted(),
    "predicted-off": predicted(decision="off", arm=None, speedup=est(0.9), speedup_of=BEST.id),
    "predicted-open": predicted(decision="undecided", speedup=est(1.02, 0.1)),
    "stopped": predicted(why_undecided="interrupted"),
    "by-kind": per_kind(),
    **{f"again-{holds}": repeated(holds) for holds in ("holds", "does-not-hold", "cannot-tell")},
    "again-off": repeated("holds", decision="off", arm=None, speedup=est(0.93), speedup_of=BEST.id),
    "hostile": hostile(),
}
"""By what is told of them."""


# --- schedules -------------------------------------------------------------------------------------------------------

LOADS = (1, 2, 4, 8)


def at_load(advice: Advice, clients: int, loads: tuple[int, ...] = LOADS) -> Advice:
    """The same as what is advised for one of several numbers of clients."""
    return advice.model_copy(update={"asked": advice.asked.model_copy(update={"clients": loads, "load": clients})})


def paired(point: float, half: float = 0.04) -> Estimate:
    """A speedup as blocks give it, which an interval for several loads together can be made of."""
    return est(point, half).model_copy(update={"method": f"geometric mean of 4 blocks; {STUDENT}"})


def schedule(*advices: Advice, loads: tuple[int, ...] = LOADS, **more: Any) -> Schedule:
    """What is advised with 1, 2, 4 and 8 clients, as far as it is given."""
    asked = confirmed().asked.model_copy(update={"clients": loads, "budget_s": 2400.0})
    found = tuple(at_load(advice, clients, loads) for advice, clients in zip(advices, loads, strict=False))
    facts: dict[str, Any] = {"asked": asked, "made_at": 1_790_000_000.0, "advices": found}
    return Schedule(**(facts | more))


def asked_for(*programs: str) -> dict[str, object]:
    """What an advice has whose line for further programs was asked for."""
    return {"command": ("llama-server", "-np", "4"), "programs": programs}


_FALLING = (
    confirmed(speedup=paired(1.92)),
    confirmed(arm=drafts(2), speedup=paired(1.3)),
    off(speedup=paired(0.8)),
    off(speedup=paired(0.7)),
)
SCHEDULES: dict[str, Schedule] = {
    "up-to": schedule(*_FALLING),
    "from": schedule(off(speedup=paired(0.9)), *(confirmed(speedup=paired(at)) for at in (1.2, 1.5, 1.9))),
    "always": schedule(*(confirmed(),) * 4),
    "never": schedule(*(off(),) * 4),
    "mixed": schedule(confirmed(), off(), confirmed(), undecided("budget")),
    "open": schedule(confirmed(), undecided("not-told-apart"), undecided("budget")),
    "open-off": schedule(ALL["nothing"], off(), undecided("budget")),
    "one-decided": schedule(*(undecided("budget"),) * 3, confirmed()),
    "between": schedule(_FALLING[0], undecided("budget"), *_FALLING[2:]),
    "first": schedule(predicted()),
    "not-begun": schedule(),
    "invalid": schedule(_FALLING[0], ALL["invalid"], *_FALLING[2:]),
    "elsewhere": schedule(*(it.model_copy(update=asked_for("vllm", "tensorrt-llm")) for it in _FALLING)),
    "per-load": schedule(*(it.model_copy(update=asked_for("llama-cli")) for it in _FALLING)),
    "again": schedule(repeated("holds"), repeated("holds"), repeated("does-not-hold"), again_of="schedule-dense"),
    "hostile": schedule(hostile(), hostile()),
}
"""By what is told of them."""
