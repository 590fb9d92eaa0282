"""rtx3090-19: what the document claims, ruled from data.

What decides is an interval (over blocks, else from the configurations that were run twice) or an exact count. What was
found invalid supports nothing: neither the configuration that is compared with an unlike baseline, nor the draft that
never drafted.
"""

from __future__ import annotations

from specmeter.studies.rtx3090.controls import (
    draft_choice,
    kv_quantization,
    length_unchanged,
    output_length,
    silent_failure,
)
from specmeter.studies.rtx3090.explanation import active_parameters, explains, gain_of_larger, threshold
from specmeter.studies.rtx3090.lines import lines
from specmeter.studies.rtx3090.loss import full_acceptance, no_gain, tail
from specmeter.studies.study import ClaimRuling, StudyData
from specmeter.studies.telling import ruling


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """In the order of the document."""
    known = lines(data)
    return (
        ruling(
            "no-gain",
            "No configuration (ngram-cache, ngram-mod with n = 8 to 32, drafts of a small model) is faster than "
            "plain decoding",
            "first paragraph; summary table",
            no_gain(known),
        ),
        ruling(
            "bimodal-tail",
            "Every configuration with drafts has a second mode at 59 to 67 tok/s, about half the baseline's 135.7",
            "first paragraph; plot per prompt",
            tail(known),
        ),
        ruling(
            "full-acceptance",
            "All drafts were accepted (100 %), in slow requests too",
            "first paragraph; counted_draft_tokens and counted_draft_accepted",
            full_acceptance(known),
        ),
        ruling(
            "kv-quantization",
            "KV quantization is not the cause: with f16 KV it loses too",
            "controls",
            kv_quantization(known),
        ),
        ruling(
            "output-length",
            "Short outputs are not the cause: with 1,000 tokens it loses too",
            "controls",
            output_length(known),
        ),
        ruling(
            "output-length-unchanged",
            "From 300 to 1,000 tokens nothing changes",
            "controls",
            length_unchanged(known),
        ),
        ruling(
            "silent-failure",
            "A draft with another vocabulary fails silently: the server decodes as without it",
            "controls",
            silent_failure(known),
        ),
        ruling(
            "draft-choice",
            "The choice of the draft model is not the cause: one with the right vocabulary loses too",
            "controls",
            draft_choice(known),
        ),
        ruling(
            "saturation-threshold",
            "About 94 tokens saturate the experts at sparsity 0.031, and drafts of 3 to 32 tokens lie well below",
            "third paragraph",
            threshold(data, known),
        ),
        ruling(
            "saturation-explains",
            "Below the threshold every drafted token brings fresh experts, and no acceptance can make up for it",
            "third paragraph",
            explains(data, known),
        ),
        ruling(
            "active-parameters",
            "Models with about 10 billion active parameters (Qwen3.5-122B-A10B) lie above the threshold",
            "fourth paragraph",
            active_parameters(data),
        ),
        ruling(
            "larger-gains",
            "Qwen3.5-122B-A10B gains 15 to 45 % by the same method",
            "fourth paragraph, quoting llama.cpp's pull request 20075",
            gain_of_larger(data),
        ),
    )
