"""Whether a model is a mixture of experts, as far as its name says. A name is no proof: None where it says nothing."""

from __future__ import annotations

import re

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
