"""Streams of numbers and what each may mean: quantity x side x scope, each with a log prior."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field, replace

from .cells import EMPTY, Num, is_number, numbers
from .grids import Grid

# Quantities. `S` is a speedup, `G` a gain in percent, `TG` a change of a time, `A` accepted / drafted, `TAU` tokens per
# step with the target's own, `TAUX` without; the rest say themselves.
IGNORE = "ignore"

BASE = re.compile(
    r"\b(?:base ?lines?|base|vanilla|plain|off|none|disabled|inactive|without|w/o|wo|autoregressive|auto ?regressive|regular|standard|before|previous|serial|classic|"
    r"(?:no|non|not)[ -]?(?:spec\w*|mtp|drafts?|drafter|sd|eagle\d*|dflash\d*|dspark|n-?gram|speculati\w*|assist\w*|acceleration)|"
    r"target[ -](?:only|alone|model only)|(?:mtp|spec\w*|sd|draft\w*|eagle\d*|dflash\d*) ?[=:]? ?(?:off|0(?![.\d])|false|none|disabled|inactive)|ar|no flags?|original|naive|dense decode|normal|stock)\b|"
    r"基线|自回归|原始|无投机|关闭|不使用|(?<![\w])-sd\b",
    re.I,
)
SPEC = re.compile(
    r"(?:\b(?:spec\w*|mtp\w*|eagle\w*|p-?eagle\w*|dflash\w*|medusa\w*|hydra\w*|draft\w*|on|with|after|enabled|active|n-?gram\w*|ng\w*-\w+|lookahead|sd|suffix\w*|pld|pearl|sps|"
    r"dspark\w*|lookup|assist\w*|accelerated|flag|w/|recycling|ouroboros|swift|layerskip|nextn|prompt lookup|self-?spec\w*|tree\w*)\b|\+sd\b|投机|草稿|开启)",
    re.I,
)
VERSUS = re.compile(
    r"\b(?:vs\.?|versus|over|than|against|compared (?:to|with)|relative to|of|x)\s+(?:the\s+)?(?:\w+[ -])?(?:base ?line|base|plain|vanilla|ar|off|none|no[ -]\w+|without \w+|classic|autoregressive|stock|target)\b",
    re.I,
)


def side_of(text: str) -> str:
    """`base`, `sd` or nothing: what words say of the side."""
    text = VERSUS.sub(" ", text.replace("_", " "))
    text = re.sub(
        r"\bvanilla (sd|spec\w*)|\bspec\w* (decoding )?(off|none|no)\b",
        lambda m: "sd" if m[1] else "baseline",
        text,
        flags=re.I,
    )
    text = re.sub(r"--spec-type\s+none", "off", text)
    if BASE.search(text):
        if (
            re.search(r"\b(base|standard|normal|regular|original|stock|with|before|plain)\b", text, re.I)
            and SPEC.search(re.sub(r"\bwith\b", " ", text))
            and not re.search(
                r"baseline|vanilla|\boff\b|without|w/o|\bno[ -]|none|autoreg|\bnon[ -]|inactive|disabled", text, re.I
            )
        ):
            return "sd"
        return "base"
    return "sd" if SPEC.search(text) else ""


def norm(text: str) -> str:
    """A heading in one spelling: units as words."""
    t = text.lower().replace("_", " ").replace("‐", "-")
    t = re.sub(
        r"(?:tokens?|toks?|tk|t)\s*(?:/|\\|-?\s?per[\s-]|-per-)\s*(?:seconds?|secs?|s)\b|\btps\b|t s\b|tok s\b|toks? per s\b|token/s",
        " tokps ",
        t,
    )
    t = re.sub(r"\b(?:ms|s|time|milliseconds)\s*(?:/|\s?per\s)\s*(?:output )?(?:tokens?|toks?|t)\b", " mspt ", t)
    t = re.sub(r"\bms\s*(?:/|\s?per\s)\s*(?:steps?|rounds?|pass|cycles?|forward)\b", " msps ", t)
    t = re.sub(
        r"\b(?:accepted )?(?:tokens?|toks?)\s*(?:/|\s?per\s|-per-)\s*(?:target |model |verif\w* |draft |main )?(?:steps?|rounds?|pass(?:es)?|cycles?|forwards?|verif\w*|iter\w*|call|draft)\b",
        lambda m: " acctps " if m[0].startswith("accepted") else " tps1 ",
        t,
    )
    t = re.sub(r"×|\(x\)|\bx\b(?= (?:base|vs))|(?<=\w) x$|^x$", " xsign ", t)
    return re.sub(r"\s+", " ", t.replace("%", " pct ")).strip()


# heading words -> evidence for a quantity (log odds). All that match count.
WORDS: list[tuple[str, dict[str, float]]] = [
    (r"speed ?-?ups?|加速|xsign|acceleration|\bsu\b", {"speedup": 5, "gain": 4}),
    (
        r"\bfactor\b|\b(vs\.?|over)\b.*\b(base|plain|ar|vanilla|off|none|no|classic|without|target|stock|autoreg\w*|serial)",
        {"speedup": 4, "gain": 4},
    ),
    (r"(pct|%) ?of (the )?(base|plain|ar\b|vanilla|no[ -])|relative (speed|throughput|to)", {"relative": 9}),
    (r"\bratio\b", {"speedup": 2, IGNORE: 2}),
    (
        r"\bgain|\bchange|delta|δ|Δ|uplift|improve|impact|faster|differ|\bdiff\b|提升",
        {"gain": 4.5, "speedup": 2.5, "time_change": 2.5},
    ),
    (r"accept|\bacc\b|\bacpt|\baccpt|α|\balpha\b|接受率|hit rate", {"acceptance": 4}),
    (
        r"(accept\w*|\bacc|\bavg|\bmean|accpt)\W*(?:ed |ance )?(draft )?(len|length|长度)|τ|\btau\b|tps1|mean len|\ba\.?len|\bal\b|\bmat\b|block efficiency|接受长度|tokens? per (pass|round|cycle|verif)",
        {"tau": 8, "accepted_per_step": 5.5, "acceptance": -4},
    ),
    (
        r"acctps|accepted per|accepted drafts? per|(mean|avg\.?|average|#mean) accepted|accepted tokens per|accepted/(step|round)|accepted/\d",
        {"accepted_per_step": 7, "tau": 7, "acceptance": -1},
    ),
    (
        r"γ|\bgamma\b|\bn[- ]?max\b|draft[- ]?(n\b|n[- ]max|len|length|depth|max|k\b|size|tokens?\b)|num spec\w* tokens|spec\w*[- ](tokens?|len|length|depth|n\b)|^k$|^n$|block ?size|草稿长度|lookahead|num (draft|spec\w*) (tokens|steps)|^depth$|heads?$|num steps|^cap$|\bn draft$|^d$|width$",
        {"gamma": 5},
    ),
    (r"tokps|吞吐|速度|throughput|goodput", {"rate": 5}),
    (
        r"\bdecod\w*|generat\w*|\btg ?\d*|output speed|\bspeed\b(?! ?-?up)|\beval\b|\brate\b|predicted per second",
        {"rate": 2.5},
    ),
    (r"prefill|prompt (eval|proc|tokps|rate|speed|per)|\bpp ?\d*\b|input tokps|预填充", {"prompt_rate": 7}),
    (
        r"total (token )?(throughput|tokps)|per gpu|per user|/user|req/s|request|drafted throughput|accepted throughput|peak",
        {"other_rate": 6},
    ),
    (r"tpot|mspt|per token latency|time per (output )?token|ms per token|每token", {"token_time": 7}),
    (r"prompt (ms|time|s$|sec)", {IGNORE: 10}),
    (r"inter.?token|\bitl\b|time between|time to (first|second)|\bttft|\bttst", {IGNORE: 9}),
    (
        r"\bpos(ition)?s?\W{0,3}\d|per[- ]?pos\w*|pos(ition)? (accept|acc)|(accept\w*|acc) (at|@) (pos|\d)|^p\d$",
        {"position": 11},
    ),
    (r"msps", {"step_time": 8}),
    (r"(pass(es)?|steps|rounds|forwards|verif\w*|cycles) ?(/|per) ?s(ec|econd)?\b", {"steps_per_s": 9}),
    (r"\b(model |file )?size\b|weights|\bactive bytes", {"size": 4, IGNORE: 2}),
    (
        r"wall|elapsed|latency|duration|end.?to.?end|e2e|total time|\btime\b|耗时|sec(onds)?\b|\((?:s|ms|min)\)|(?<=[a-z\d)] )m?s$|^m?s$|took",
        {"wall_time": 4},
    ),
    (
        r"(decode|eval|gen\w*\.?|predicted|generation)[ -](time|ms|s\b|sec)",
        {"decode_time": 6, "rate": -4, "wall_time": -4},
    ),
    (
        r"^(#? ?)tokens?$|output tokens|generated|gen(erated)? tok|completion tokens|n predict|predicted n|\bpred\b|tokens out|emitted|output len|new tokens|predicted tokens|生成",
        {"tokens": 5},
    ),
    (
        r"\bdrafted\b|draft(ed)? tokens|proposed|n drafted|\bdraft n$|^draft$|counted draft tokens|total draft$|num draft tokens|草稿数",
        {"drafted": 5},
    ),
    (
        r"\baccepted\b|n accept|accepted tokens|draft n accepted|draft acc\b|\bacc$|accepted drafts|num accepted|total accepted",
        {"accepted": 5},
    ),
    (
        r"\bsteps?$|rounds|cycles|(?<!accepted )\bdrafts$|num drafts|verify|iterations|forwards|passes|\bcalls|n decode|spec steps",
        {"steps": 5},
    ),
    (r"concurren|\bbatch|^bs$|users|parallel|\bnp\b|streams|\bslots?$|num seqs|clients|^conc", {"concurrency": 6}),
    (
        r"context|\bctx|prompt$|\bisl|\bosl|seed|max (new )?tokens|input|temp|\bt\b ?=|layers|\brun\b|\brep|budget|\btp\b|question|sequence|samples|runs|p[- ]min|topk|top-k|threshold|index|^#$|window|depth \(|^id$|block$|batch|ratio of|n depth|prompts",
        {"condition": 5},
    ),
    (
        r"memory|vram|\bgb\b|power|watt|\bppl|perplex|peak|p9\d|p50|\bstd|stddev|(?<!p )(?<!p-)\bmin\b|(?<!n )(?<!n-)(?<!draft )(?<!draft-)\bmax\b(?! ?draft)|\bci\b|cost|range|overhead|utili|score|accuracy|correct|pass@|prefill|load|energy|joule|efficien|prompt tokens|\bjs\b|kl\b|entropy|params|bandwidth|fully|share of (drafts|output)|draft share|position|first|invocation|\bitem\b|started|attempt|step n\b|prompt n\b|\bngl\b|threads|backend|^n batch|year|version|cache n|\bpos\b|positions|per-pos|rejected|saved|overall time|noise|margin|error|draft/gen",
        {IGNORE: 5},
    ),
]
CONTRARY = re.compile(r"not counted|excl\w*|without bonus|excluding|draft tokens per step|accepted draft", re.I)
BY_UNIT = {
    "rate": {"rate", "prompt_rate", "other_rate", "draft_rate", IGNORE},
    "x": {"speedup", IGNORE, "condition"},
    "%": {"relative", "acceptance", "gain", "time_change", "position", IGNORE},
    "pp": {IGNORE},
    "ms": {"token_time", "wall_time", "decode_time", "step_time", IGNORE},
    "mspt": {"token_time", IGNORE},
    "msps": {"step_time", IGNORE},
    "tps": {"tau", "accepted_per_step", IGNORE},
    "size": {"size", IGNORE},
    "tok": {"tokens", "drafted", "accepted", "gamma", IGNORE, "tau", "accepted_per_step"},
    "other": {IGNORE},
    "big": {IGNORE},
}
SHARP = 1.25
"""Nats per point of evidence."""
COUNTS = {"tokens", "drafted", "accepted", "steps", "concurrency", "gamma"}


SETTING = re.compile(
    r"\b(?:concurrency|conc|batch(?: size)?|bs|np|users?|parallel|clients|isl|osl|ctx|context|n[- ]?max|k|n|t|temp(?:erature)?|heads|depth|draft[- ]max|draft|gamma|mtp|run|rep|tp|prompt|streams|seqs?|slots?)\s?[-=: ]?\s?\d[\d.,]*k?\b|"
    r"\b\d[\d.]*k?\s?(?:users?|clients|streams|slots|requests|ctx|context|tokens)\b",
    re.I,
)
"""Words with a number in a heading say under what the column was measured, and not what it holds."""


@dataclass(frozen=True)
class Meaning:
    """One candidate: what a stream would be, and how likely before anything is compared."""

    quantity: str
    side: str
    prior: float
    scale: float = 1.0
    basis: str = ""
    points: float = 0.0
    """Absolute evidence in the heading, for choosing between a grid and the grid on its side."""
    """Of a speedup: `rate` of decoding, `time` of the whole; of a share: nothing or `output`."""

    def __str__(self) -> str:
        return f"{self.quantity}{'.' + self.side if self.side else ''}{'/' + self.basis if self.basis else ''}"


@dataclass
class Stream:
    """The numbers that stand at the same place of the cells of a column."""

    column: int
    slot: str
    heading: str
    values: dict[int, Num]
    scope: frozenset[str] = frozenset()
    candidates: list[Meaning] = field(default_factory=list)
    mean: bool = False
    own: bool = False
    """Whether it is the first number of its cell."""


STOP = set(
    "the of a an in on at per and or to for with by vs x mean median avg average rate pct tok tokens token s ms t decode decoding generation output throughput speed tokps mspt acceptance accept accepted length len "
    "speedup speed-up draft model max n k ratio time total wall wall-clock latency pred predicted overall result xsign sec seconds tps1 acctps change gain delta spec speculative speculation base baseline vanilla without no off plain none "
    "ar w/o up run all number num count rates drafted hit tg eval gen mode cache - / = & + tps toks tok/s t/s tk/s clock end e2e end-to-end".split()
)


def scope_of(heading: str) -> frozenset[str]:
    words = re.findall(r"[\w.+=]+|[^\x00-\x7f]+", VERSUS.sub(" ", norm(heading)))
    return frozenset(w for w in words if w not in STOP and not re.fullmatch(r"\W+", w))


def split_bracket(heading: str) -> tuple[str, str]:
    m = re.search(r"\(([^()]*)\)\s*$", heading)
    return (heading[: m.start()].strip(), m[1]) if m and heading[: m.start()].strip() else (heading, "")


def streams_of(grid: Grid) -> list[Stream]:
    """The numbers of a grid, sorted into streams with their candidates."""
    out: list[Stream] = []
    for c, heading in enumerate(grid.head):
        cells = {r: row[c] for r, row in enumerate(grid.rows) if row[c] and not EMPTY.fullmatch(row[c])}
        numeric = {r: numbers(cell) for r, cell in cells.items() if is_number(cell)}
        if not numeric or len(numeric) * 2 < len(cells) and len(numeric) < 2:
            continue
        if len(numeric) * 3 < len(cells):
            continue
        main, bracket = split_bracket(heading)
        slots: dict[str, dict[int, Num]] = {}
        firsts = [nums[0].unit for nums in numeric.values() if nums[0].unit]
        usual = max(set(firsts), key=firsts.count) if firsts else ""
        for r, nums in numeric.items():
            seen: dict[str, int] = {}
            for n, num in enumerate(nums):
                kind = (
                    "first"
                    if n == 0 and num.role not in {"num"}
                    else (num.role if num.role in {"num", "den", "before", "after"} else (num.unit or "plain"))
                )
                if n == 0 and num.role == "before":
                    kind = "before"
                elif (
                    kind == "first"
                    and num.unit
                    and num.unit != usual
                    and {num.unit, usual} & {"rate", "ms", "size", "mspt"}
                ):
                    kind = "first " + num.unit
                seen[kind] = seen.get(kind, 0) + 1
                key = kind if seen[kind] == 1 else f"{kind}{seen[kind]}"
                slots.setdefault(key, {})[r] = num
        for slot, values in slots.items():
            if slot != "first" and slot not in {"num", "before", "after", "den"} and len(values) < 1:
                continue
            words = " ".join(num.words for num in values.values() if num.words)
            text = heading
            if slot.split()[0] not in {"first", "num", "before"} and len(slots) > 1:
                text = bracket if bracket and len(bracket) > 2 else ""
            stream = Stream(
                c, slot, heading, values, scope_of(heading), own=slot.split()[0] in {"first", "num", "before"}
            )
            stream.mean = bool(re.search(r"\bmean|\bavg|average|median|平均|\bp50", norm(heading + " " + words)))
            stream.candidates = candidates(stream, text, words, bracket, grid, slots)
            out.append(stream)
    return _sides_by_others(out)


def _sides_by_others(streams: list[Stream]) -> list[Stream]:
    """A speed that no word calls plain may be the baseline of one that a word calls drafted, and the other way round."""
    tops = [s.candidates[0] for s in streams]
    for quantity in ("rate", "token_time", "wall_time", "decode_time"):
        sides = {m.side for m in tops if m.quantity == quantity}
        for other, own in (("sd", "base"), ("base", "sd")):
            if other in sides and own not in sides and "" in sides:
                for s, m in zip(streams, tops):
                    if m.quantity == quantity and not m.side:
                        s.candidates.append(replace(m, side=own, prior=-1.0))
    return streams


def candidates(
    stream: Stream, text: str, words: str, bracket: str, grid: Grid, slots: dict[str, dict[int, Num]]
) -> list[Meaning]:
    """What a stream may mean, best first, at most five, with log priors that sum to about one."""
    values = list(stream.values.values())
    said = [num.unit for num in values if num.unit]
    unit = max(set(said), key=said.count) if said else ""
    heading = norm(stream.heading)
    head = norm(text)
    main, inside = split_bracket(head)
    own_unit = unit
    if not unit and stream.own:
        unit = heading_unit(stream.heading)
    middle = statistics.median(abs(num.value) for num in values)
    score: dict[str, float] = {IGNORE: 1.0}

    def add(evidence: dict[str, float], weight: float) -> None:
        for quantity, points in evidence.items():
            score[quantity] = score.get(quantity, 0.0) + points * weight

    main = SETTING.sub(" ", main)
    for pattern, evidence in WORDS:
        if re.search(pattern, main):
            add(evidence, 1.0)
        elif (
            inside
            and re.search(pattern, inside)
            and not (
                stream.own and len(slots) > 1 and any(n.bracket for values_ in slots.values() for n in values_.values())
            )
        ):
            add(evidence, 0.45)
    if words:
        for pattern, evidence in WORDS:
            if re.search(pattern, norm(words)):
                add(evidence, 0.6 if stream.own else 1.0)
    if not stream.own:  # a second number of a cell
        if stream.slot == "den":
            score = (
                {"drafted": 5.0, IGNORE: 1.0}
                if re.search("accept|acc|draft", heading + norm(words))
                else {IGNORE: 3.0, "drafted": 1.0}
            )
        elif stream.slot == "after":
            score = (
                {"rate": 3.0, "token_time": 1.0, IGNORE: 1.0}
                if unit in {"", "rate"}
                else {"token_time": 2.0, "wall_time": 2.0, IGNORE: 1.5}
            )
        elif unit in {"%", ""} and re.search("pos", heading):
            add({"position": 8.0}, 1.0)
        elif unit == "%":
            add({"acceptance": 2.0, "gain": 2.0}, 1.0)
            signed = sum(num.signed for num in values) * 2 > len(values)
            add({"gain": 4.0} if signed else {"acceptance": 1.0}, 1.0)
            if re.search("accept|acc", norm(words) + heading):
                add({"acceptance": 3.0, "gain": -2.0 if not signed else 0}, 1.0)
        elif unit == "x":
            add({"speedup": 4.0}, 1.0)
    if stream.slot == "num":
        if re.search("accept|acc|draft", heading + norm(words)):
            add({"accepted": 5.0, "tau": 0.5, "acceptance": -4.0}, 1.0)
        elif re.search(r"mean|std|±", heading):
            add({"rate": 1.0}, 1.0)
        else:
            add({IGNORE: 3.0}, 1.0)
    # units
    if unit == "rate":
        for q in ("prompt_rate", "other_rate"):
            if q in score:
                add({q: 5.0}, 1.0)
        add({"rate": 6.0 if own_unit else 4.0, "draft_rate": 1.0 if "draft" in heading else -9.0}, 1.0)
        score.setdefault("rate", 1.0)
    elif unit == "x":
        add({"speedup": 4.0}, 1.0)
    elif unit == "%":
        signed = sum(num.signed for num in values) * 2 > len(values) or any(num.value < 0 for num in values)
        add(
            {
                "acceptance": 1.0 if not signed else -4.0,
                "gain": 3.5 if signed else 0.5,
                "time_change": 1.0 if signed else -1.0,
            },
            1.0,
        )
    elif unit == "ms":
        add({"wall_time": 2.0, "token_time": 1.0}, 1.0)
        if re.search("ttft|first", heading):
            add({IGNORE: 4.0}, 1.0)
    elif unit == "mspt":
        add({"token_time": 5.0}, 1.0)
    elif unit == "msps":
        add({"step_time": 5.0}, 1.0)
    elif unit == "size":
        add({"size": 5.0 if re.search(r"size|weights|file|model", heading) else 0.0, IGNORE: 1.0}, 1.0)
    elif unit == "tok":
        add({"tokens": 2.0}, 1.0)
    elif unit == "tps":
        add({"tau": 5.0, "accepted_per_step": 3.5}, 1.0)
    allowed = BY_UNIT.get(unit)
    kept = {q: s for q, s in score.items() if q in (allowed or ())}
    if allowed and (own_unit or max((s for q, s in kept.items() if q != IGNORE), default=0) + 1 >= max(score.values())):
        score = {q: s for q, s in score.items() if q in allowed}
    if not unit and stream.own and grid.kind != "prose" and not any(q != IGNORE and s > 2 for q, s in score.items()):
        # nothing but names of methods or data sets over it: the text above may say what the cells are
        if (
            side_of(stream.heading)
            or stream.scope
            and not any("tokps" in norm(h) for h in grid.head)
            and grid.kind != "csv"
        ):
            said_above = norm(grid.context.split("\n")[-1] if grid.context else "") + " " + norm(grid.head[0])
            hint = {"rate": 1.5, "token_time": -0.5, "speedup": 0.5 if 0.5 < middle < 10 else -3}
            if (
                any(all(re.fullmatch(r"1(\.0*)?x?", row[c]) for row in grid.rows) for c in range(len(grid.head)))
                and 0.2 < middle < 12
            ):
                hint = {"speedup": 5.0}
            elif side_of(stream.heading):
                hint["rate"] += 2.0 if re.search("baseline|no |without|vanilla", heading) else 1.0
                hint["rate"] += 1.0 if any("tokps" in norm(h) for h in grid.head) else 0.0
            if re.search("tokps|throughput|speed(?! ?up)", said_above):
                hint["rate"] += 3
            if re.search("mspt|tpot", said_above):
                hint["token_time"] += 4
            if re.search("speed ?-?up", said_above):
                hint["speedup"] += 3
            if re.search("accept|acc", said_above):
                hint = {"acceptance": 1.0, "tau": 1.0 if middle > 1 else -2.0}
            add(hint, 1.0)
    if re.search(r"accept|acc\b|hit rate", main):
        score.pop("rate", None)
    # what the sizes of the numbers say
    whole = all(float(num.value).is_integer() for num in values)
    if "acceptance" in score:
        if unit != "%" and middle > 1.3 and not re.search(r"pct|rate", heading) and middle < 20:
            score["acceptance"] -= 2.5
            add({"tau": 4.0, "accepted_per_step": 3.0}, 1.0)
        if middle > 110:
            score["acceptance"] -= 6
            add({"accepted": 3.0}, 1.0)
    for quantity in ("tau", "accepted_per_step"):
        if quantity in score:
            if middle > 40 or middle < 0.02 or unit == "%":
                score[quantity] -= 6
            if quantity == "tau" and min((n.hi for n in values), default=1) < 0.97:
                score[quantity] -= 6
            if CONTRARY.search(
                " ".join(
                    [stream.heading, grid.context, *[c for row in grid.rows[:12] for c in row if not is_number(c)]]
                )
            ):
                score[quantity] += 4 if quantity == "accepted_per_step" else -4
    if "speedup" in score and (middle > 30 or unit == "%"):
        score["speedup"] -= 6
    if "speedup" in score and not unit and any(num.signed for num in values) and any(num.value < 0 for num in values):
        score["speedup"] -= 6
    if "gain" in score and unit not in {"%"} and "pct" not in heading and not any(num.signed for num in values):
        score["gain"] -= 5
    if "gamma" in score and (middle > 130 or not whole):
        score["gamma"] -= 6
    if (
        "gamma" in score
        and re.fullmatch("k|top-?k|width", heading)
        and re.search(r"eagle|medusa|hass|tree|hydra", " ".join(c for row in grid.rows[:12] for c in row), re.I)
    ):
        add({"condition": score["gamma"] - 1}, 1.0)
    if "drafted" in score and "gamma" in score and whole:
        for quantity, points in (
            [("gamma", 3.0 if middle <= 24 else 0.5), ("drafted", -2.0 if middle <= 16 else 0.0)]
            if middle <= 64
            else [("drafted", 3.0)]
        ):
            score[quantity] += points
    for quantity in COUNTS & set(score):
        if not whole and quantity != "tokens":
            score[quantity] -= 4 if quantity != "accepted" or middle < 1.5 else 2
    if "accepted" in score and "acceptance" in score and whole and middle > 1 and unit != "%":
        score["accepted"] += 2
        score["acceptance"] -= 2
    if "accepted" in score and unit == "%":
        score.pop("accepted")
    if re.search(r"p9\d|\bstd|\bmin\b|\bmax\b(?! |-)|peak|\bci\b", heading) and not re.search(
        "n max|n-max|draft max", heading
    ):
        score[IGNORE] += 5
    if (
        "rate" in score
        and re.search(
            r"\bdraft(er)?( model)?( only| alone)? (tokps|speed|rate|throughput|t/s)|draft (only|alone)", heading
        )
        and not re.search("with|no |without|w/o|max|n-max|acc|spec", heading)
    ):
        score["draft_rate"] = score["rate"] + 0.5
    ranked = sorted(score.items(), key=lambda it: -it[1])[:4]
    top = ranked[0][1]
    side = {"before": "base", "after": "sd"}.get(stream.slot) or side_of(stream.heading)
    out: list[Meaning] = []
    for quantity, points in ranked:
        prior = (points - top) * SHARP
        if prior < -7.5:
            continue
        out += [
            replace(m, points=min(points, 6.0)) for m in _sides(quantity, side, prior, stream, unit, middle, heading)
        ]
    if all(m.quantity != IGNORE for m in out):
        out.append(Meaning(IGNORE, "", max(-7.5, (score.get(IGNORE, 1.0) - top) * SHARP)))
    unique: dict[tuple[str, str, float, str], Meaning] = {}
    for m in sorted(out, key=lambda m: -m.prior):
        unique.setdefault((m.quantity, m.side, m.scale, m.basis), m)
    return list(unique.values())[:6]


def heading_unit(heading: str) -> str:
    h = norm(heading)
    for unit, pattern in (
        ("rate", "tokps"),
        ("mspt", "mspt"),
        ("msps", "msps"),
        ("tps", "tps1"),
        ("%", r"\(? ?pct\b|percent"),
        ("ms", r"\((?:ms|s|sec|seconds|min)\)|\b(ms|sec|seconds)$| s$|tpot|\blatency s\b"),
        ("size", r"\b(gb|gib|mb|mib)\b"),
        ("x", "xsign"),
    ):
        if re.search(pattern, h):
            return unit
    return ""


def _sides(
    quantity: str, side: str, prior: float, stream: Stream, unit: str, middle: float, heading: str
) -> list[Meaning]:
    """A quantity with its sides, scales and bases."""
    if quantity == IGNORE or quantity in {"prompt_rate", "other_rate", "condition", "concurrency", "size"}:
        return [Meaning(quantity, "", prior)]
    if quantity in {"gamma", "accepted_per_step", "drafted", "accepted", "steps", "draft_rate", "tau"}:
        return [Meaning(quantity, "", prior)]
    if quantity == "relative":
        return [Meaning("speedup", "", prior, 0.01 if middle > 20 else 1.0, "rate")]
    if quantity == "steps_per_s":
        return [Meaning("steps_per_s", side, prior)]
    if quantity in {"token_time", "wall_time", "decode_time", "step_time"}:
        scale = 1.0
        if unit in {"ms", "", "mspt"} and not any(n.unit for n in stream.values.values()):
            scale = (
                60000.0
                if re.search(r"\(min\)", heading)
                else 1000.0
                if re.search(r"\bs\b|\bsec|second", heading) and not re.search(r"\bms\b|mspt", heading)
                else 1.0
            )
        out = [Meaning(quantity, side, prior, scale)]
        if quantity == "wall_time":
            out.append(
                Meaning(
                    "decode_time",
                    side,
                    prior - (0.7 if not re.search("wall|e2e|end.to.end|latency|load", heading) else 3.0),
                    scale,
                )
            )
        if quantity == "decode_time":
            out.append(Meaning("wall_time", side, prior - 4.0, scale))
        return out
    if quantity in {"acceptance", "position"}:
        percent = unit == "%" or "pct" in heading or "percent" in heading
        scale = 0.01 if percent or middle > 1.3 else 1.0
        if quantity == "position":
            return [Meaning("position", "", prior, scale)]
        if percent and unit != "%" or percent and not any(n.unit == "%" for n in stream.values.values()):
            if middle <= 1.0:
                return [Meaning("acceptance", "", prior, 1.0), Meaning("acceptance", "", prior - 2.0, 0.01)]
        return [Meaning("acceptance", "", prior, scale)]
    if quantity == "speedup":
        whole = bool(re.search(r"wall|e2e|end.to.end|latency|total|request", heading))
        tokens = bool(re.search("decode|tokps|tps|throughput|generation|tg", heading))
        close = not stream.own
        return [
            Meaning("speedup", "", prior - (1.6 if whole else 0.0), 1.0, "rate"),
            Meaning("speedup", "", prior - (0.0 if whole else 5.0 if close or tokens else 3.2), 1.0, "time"),
        ]
    if quantity == "gain":
        return [
            Meaning("gain", "", prior, 0.01, "rate"),
            Meaning("gain", "", prior - (2.0 if stream.own else 5.0), 0.01, "time"),
        ]
    if quantity == "time_change":
        return [Meaning("time_change", "", prior, 0.01)]
    out = [Meaning(quantity, side, prior)]
    if quantity == "rate" and side and not re.search("baseline|without|no |vanilla", heading):
        out.append(Meaning(quantity, "", prior - 3.5))
    if (
        quantity == "rate"
        and re.search(r"\bdraft\b", heading)
        and side == "sd"
        and not re.search(r"with|\+|spec", heading)
    ):
        out.append(Meaning("draft_rate", "", prior - 2.0))
    return out
