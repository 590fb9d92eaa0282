"""How drafts are made, by the names that people give their methods, as far as a bound depends on it.

model    a draft model, one token per forward: each draft costs a forward
chain    a head or small module, one token per forward, whose cost is not that of any model by itself
tree     candidates branch, and one path of them can be accepted: a share of nodes is not an acceptance per position
block    several tokens per forward
lookup   n-grams and other tables: drafts cost next to nothing

Names also say settings (`n-max 4`), and those of models whether they are mixtures of experts. A name proves nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

Family = Literal["none", "model", "chain", "tree", "block", "lookup", "unknown"]

_FAMILIES: tuple[tuple[Family, str], ...] = (
    ("tree", r"medusa|eagle|hydra|sequoia|specinfer|opt-?tree|\btree|\brest\b|ouroboros|recycling|beagle|\bhass\b|"
             r"re-?drafter|spectr\b|traversal|griffin\b|\bcoral\b|kangaroo|clover"),
    ("chain", r"\bmtp\b|next-?n\b|multi-?token|self-?spec|layer-?skip|swift"),
    ("block", r"dflash|dspark|parallel|\bpard\b|diffusion|\bblock"),
    ("lookup", r"n-?gram|look-?(up|ahead)|\bpld\b|prompt-?cache|suffix|\bsam\b|retrieval|\blade\b"),
    ("model", r"^draft\b|draft-?(simple|model)|^(vanilla )?(sd|sps)$|speculative|spec-?(dec|sampl)|assist|two-?model|"
              r"small-?model|standalone|^spec$"),
)  # fmt: skip
"""The first that fits; a name has its spaces and underscores read as hyphens too."""


def family(method: str | None) -> Family:
    """What a method's name says; `unknown` for a name that says nothing, or none at all."""
    if method is None:
        return "unknown"
    name = method.lower().strip()
    if name == "none":
        return "none"
    spellings = (name, re.sub(r"[\s_]+", "-", name))
    for found, pattern in _FAMILIES:
        if any(re.search(pattern, spelling) for spelling in spellings):
            return found
    return "unknown"


def family_of(claim: Claim) -> Family:
    """What the method says, or the draft's name where that says more: `EAGLE3-LLaMA3.1-8B` under "speculative"."""
    found = family(claim.method)
    if found in {"unknown", "model"} and claim.draft is not None:
        of_draft = family(claim.draft)
        return of_draft if of_draft in {"tree", "chain", "block"} else "model"
    return found


def drafts_one_by_one(claim: Claim) -> bool:
    """Whether each draft token cost one forward of a draft model.

    So it is where the method says so; and where its name says nothing else, and a draft model or its rate is named, or
    no method is.
    """
    found = family_of(claim)
    return found == "model" or (
        found == "unknown" and (claim.method is None or claim.draft_rate is not None or claim.speed_ratio is not None)
    )


def may_be_tree(claim: Claim) -> bool:
    """Whether acceptance may be a share of the nodes of a tree: a method of an unknown name may draft trees."""
    if claim.tree is not None:
        return claim.tree
    return family_of(claim) == "tree" or (claim.method is not None and family(claim.method) == "unknown")


def length_binds(claim: Claim) -> bool:
    """Whether no step can draft or accept more than gamma tokens.

    What is called k beside a tree may be its width or its nodes, and methods that adapt their length, or draft on while
    they verify, go beyond it. An engine that says whether its drafts are trees gives their depth.
    """
    if claim.tree is not None:
        return True
    return not may_be_tree(claim) and not (claim.method and _OPEN_LENGTH.search(claim.method.lower()))


_OPEN_LENGTH = re.compile(r"adapt|dynamic|\bpearl\b|\bsvip\b|suffix|look-?ahead|\bsam\b|specdec\+\+")


_SETTINGS = (
    ("gamma", re.compile(r"(?:\bn[-_ ]?max|\bk|\bγ|\bgamma|\bdraft[-_ ](?:n[-_ ])?max)\s*[=:]?\s*(\d{1,3})\b", re.I)),
    ("p_min", re.compile(r"\bp[-_ ]?min\s*[=:`]?\s*(0?\.\d{1,4}|0|1)\b", re.I)),
)


def read_settings(text: str) -> dict[str, float]:
    """Draft length and least certainty that a name says: `n-max 4, p-min 0.6`, `EAGLE-3, k=3`."""
    found: dict[str, float] = {}
    for name, pattern in _SETTINGS:
        if (match := pattern.search(text[:200])) is not None:
            found[name] = float(match.group(1))
    return found


# --- models by their names --------------------------------------------------------------------------------------------

_EXPERTS = re.compile(
    r"moe|(?<![a-z0-9])a[0-9]+(?:\.[0-9]+)?b(?![a-z0-9])|[0-9]x[0-9]+(?:\.[0-9]+)?b|mixtral|gpt-?oss|dbrx|grok|kimi-?k2"
    r"|deepseek-?(?:v[23]|r1(?!-distill)|2)|llama-?4|qwen3-?next|glm-?4\.[5-9]|minimax|ling-|hunyuan-?a"
)
_DENSE = re.compile(
    r"\bdense\b|(?<![a-z0-9])(?:qwen(?:2|2\.5|3|3\.5|35|3\.6)?|llama(?:-?[23](?:\.[0-9])?)?|tinyllama|gemma-?[23]?|"
    r"mistral|phi-?[234]?|falcon|vicuna|smollm[23]?|starcoder2?|olmo2?)"
    r"[-_ :]+(?:instruct|it|v?[0-9.]+)?[-_ :]*[0-9]+(?:\.[0-9]+)?[bm](?![a-z0-9])"
)


def mixture_of_experts(name: str) -> bool | None:
    """True or False where the name of a model says so, None where it does not."""
    plain = name[:500].lower()
    if _EXPERTS.search(plain):
        return True
    return False if _DENSE.search(plain) else None
