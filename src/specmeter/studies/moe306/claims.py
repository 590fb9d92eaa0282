"""moe-306: the paper's contributions, findings and advice, ruled from data.

What decides is said in `specmeter.studies.telling`. Speedups that do not stand count for nothing; where the paper's
condition (acceptance under 4 %) does not hold in the data, that is said.
"""

from __future__ import annotations

from specmeter.studies.moe306.dependence import (
    best_configuration,
    contexts,
    hierarchy,
    lengths_and_gamma,
    maximise_gamma,
    quantization,
    smallest_draft,
    total_parameters,
)
from specmeter.studies.moe306.gain import always_enable, better_drafts, low_acceptance, works_for_moe
from specmeter.studies.moe306.mechanism import amortization, equation_2, moe_tax, verification_cost
from specmeter.studies.moe306.particulars import (
    architecture,
    cause_of_decline,
    compute_bound,
    draft_cost,
    gain_range,
    lossless,
    round_length,
    slower_than_dense,
)
from specmeter.studies.study import ClaimRuling, StudyData
from specmeter.studies.telling import ruling


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """Contributions, findings, advice, then what they rest on."""
    return (
        ruling(
            "contribution-1",
            "Acceptance of small dense drafts is uniformly low, below 4 %, for MoE and dense targets alike.",
            "abstract; section 1, contribution 1; section 4.7, Figure 4",
            low_acceptance(data),
        ),
        ruling(
            "contribution-2",
            "On MoE targets speculation gains 1.18-1.30x at nearly no acceptance, by batch verification "
            "amortization: verifying gamma wrong tokens in one forward is by itself faster than decoding.",
            "abstract; section 1, contribution 2; sections 2.2 and 4.2; summary page",
            amortization(data),
        ),
        ruling(
            "contribution-3",
            "The gain scales with the target's total parameters (memory footprint), not with its active ones.",
            "abstract; section 1, contribution 3; section 4.3, Figure 1",
            total_parameters(data),
        ),
        ruling(
            "contribution-4",
            "The gain on MoE is robust across prompt lengths (1.19-1.26x) and rises monotonically with gamma.",
            "section 1, contribution 4; section 4.8, Figure 5; section 4.4, Figure 2",
            lengths_and_gamma(data),
        ),
        ruling(
            "finding-1",
            "Speculation works for MoE: 1.18-1.30x despite acceptance under 4 %.",
            "section 6, finding 1; Table 5",
            works_for_moe(data),
        ),
        ruling(
            "finding-2",
            "MoE gains more than the dense 4B, whose active parameters are alike, and less than the dense 9B.",
            "section 4.3; section 6, finding 2; summary page",
            hierarchy(data),
        ),
        ruling(
            "finding-3",
            "The best configuration is the smallest draft with the largest gamma (0.8B, gamma 16).",
            "section 6, finding 3",
            best_configuration(data),
        ),
        ruling(
            "finding-4",
            "The gain is robust across contexts: prompt lengths (1.19-1.26x) and kinds of prompts.",
            "section 4.8; section 6, finding 4",
            contexts(data),
        ),
        ruling(
            "practice-1",
            "Always enable speculation on MoE models: a 0.8B draft with gamma 16 gives 26-30 % for free.",
            "section 5.4, implication 1",
            always_enable(data),
        ),
        ruling(
            "practice-2",
            "Use the smallest draft: 0.8B is 0.12-0.14x faster than 2B although it is accepted less.",
            "section 4.5, Table 6; section 5.4, implication 2",
            smallest_draft(data),
        ),
        ruling(
            "practice-3",
            "Maximise gamma: larger gamma always gains more, since verification is amortized over more tokens.",
            "section 4.4, Figure 2; section 5.4, implication 3",
            maximise_gamma(data),
        ),
        ruling(
            "practice-4",
            "With drafts that match the MoE, more than 50 % would be accepted, and speedups of 3-5x follow.",
            "section 5.4, implication 4",
            better_drafts(data),
        ),
        ruling(
            "equation-2",
            "The effective speedup is gamma T_seq / (T_draft + T_verify): drafts that are rejected count as well.",
            "section 2.2, Eq. 2",
            equation_2(data),
        ),
        ruling(
            "moe-tax",
            "An MoE is slower than its active parameters promise because all parameters are loaded from memory for "
            "every token (20.6 GB x 55.3 tok/s; caches explain what is above the peak).",
            'sections 1, 2.3, 4.1 and 5.2, Table 4; summary page ("MoE tax")',
            moe_tax(data),
        ),
        ruling(
            "verification-cost",
            "Verification cost grows sub-linearly: verifying 16 tokens costs only about 1.5 times as much as 4.",
            "section 4.4; summary page",
            verification_cost(data),
        ),
        ruling(
            "range",
            "On the mixtures speculation delivers 1.18-1.30x.",
            "abstract; section 1, contribution 2; section 6, finding 1",
            gain_range(data),
        ),
        ruling(
            "lossless",
            "There is no quality degradation: the target's output distribution is preserved.",
            "section 5.4, implication 1",
            lossless(data),
        ),
        ruling(
            "draft-cost",
            "The 0.8B draft costs 2.5 times less than the 2B one, which is why it gains more.",
            "section 4.5",
            draft_cost(data),
        ),
        ruling(
            "moe-slower",
            "With fewer active parameters the mixtures (55.3 and 49.9 tok/s) are slower than the dense 4B (67.2).",
            "section 4.1, Table 4; summary page",
            slower_than_dense(data),
        ),
        ruling(
            "compute-bound",
            "Dense models of 4B and below are bound by arithmetic, not by memory.",
            "section 5.1; section 4.6, Figure 3",
            compute_bound(data),
        ),
        ruling(
            "figure-5-cause",
            "The speedup declines on longer prompts because reading the prompt costs relatively more.",
            "section 4.8, Figure 5",
            cause_of_decline(data),
        ),
        ruling(
            "section-5-2",
            "At gamma 16, 256 tokens take about 16 rounds of 229 ms, each of which loads the weights once.",
            "section 5.2",
            round_length(data),
        ),
        ruling(
            "experts",
            "The mixture has 128 experts, of which a token uses 2.",
            "section 2.3",
            architecture(data),
        ),
        ruling(
            "section-5-3",
            "The larger file gains more: MoE Q8 (1.30x) is more bound by bandwidth than MoE Q4 (1.26x).",
            "section 5.3",
            quantization(data),
        ),
    )
