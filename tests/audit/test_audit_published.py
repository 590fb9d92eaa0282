"""The published studies: what must come out, worked out by hand from their numbers."""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import fmean

import pytest

from originals import rows as table
from said import codes
from specmeter.audit import published
from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import published as audited
from specmeter.audit.reading import read_claims
from specmeter.errors import UsageError

PAGE = ("quantization", "speculation", "machines", "remote-drafts")
NO_RATES = {
    "rtx3090-19/configurations.csv",
    "rtx3090-aug/later.csv",
    "rtx3090-38/steps.csv",
    "rtx3090-38/other.csv",
}
"""Tables that claim no rate, and are not audited."""
DATA = Path(str(resources.files("specmeter.audit.published"))) / "data"


def tables() -> list[Path]:
    return sorted(DATA.glob("*/*.csv"))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@cache
def rulings(name: str) -> dict[tuple[str, str], Ruling]:
    """(source, row) -> ruling."""
    return {(ruling.claim.source, ruling.claim.row): ruling for ruling in audited(name).rulings}


def verdicts(name: str, source: str) -> Counter[str]:
    return Counter(ruling.verdict for (where, _), ruling in rulings(name).items() if where == source)


def bounds_broken(ruling: Ruling) -> set[str]:
    broken = {str(it.values["bound"]) for it in ruling.others if it.code == "audit.tried.broken"}
    return broken | {ruling.bound} if ruling.broken else broken


# --- the package -----------------------------------------------------------------------------------------------------


def test_names_and_sizes() -> None:
    assert published.names() == ("moe-306", "apple", "rtx3090-19", "rtx3090-aug", "rtx3090-38")
    assert {name: len(rulings(name)) for name in published.names()} == {
        "moe-306": 356,
        "apple": 131,
        "rtx3090-19": 209,
        "rtx3090-aug": 38,
        "rtx3090-38": 56,
    }
    assert sum(len(path.read_bytes()) for path in tables()) < 300_000


def test_rows_are_named_once() -> None:
    for name in published.names():
        assert len(list(published.claims(name))) == len(rulings(name))


def test_an_unknown_study_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as problem:
        published.claims("moe-307")
    assert "moe-306" in problem.value.fix


def test_every_file_has_its_source_told() -> None:
    told = (DATA / "SOURCES.md").read_text(encoding="utf-8")
    assert all(f"`{path.parent.name}/{path.name}`" in told for path in tables())


def test_every_row_says_what_it_was_copied_from_and_where_it_stands_there() -> None:
    for path in tables():
        places = [(row["source_document"], row["source_place"]) for row in published.cells(name_of(path))]
        assert all(document and place for document, place in places)
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("name", published.names())
def test_a_packaged_table_read_like_any_file_makes_the_same_claims(name: str) -> None:
    files = [path for path in tables() if path.parent.name == name]
    for path in files:
        if name_of(path) in NO_RATES:
            continue
        read, claims = read_claims(path, None, TableOptions())
        assert read == "table"
        packaged = {claim.row: claim for claim in published.table(name_of(path))}
        assert {claim.row: claim.model_copy(update={"source": name_of(path)}) for claim in claims} == packaged


@pytest.mark.parametrize(
    ("original", "packaged"),
    [
        ("moe306_runs.csv job_id tokens_per_sec", "moe-306/runs.csv source_place decode_rate"),
        ("moe306_tables.csv tok_s speedup", "moe-306/tables.csv decode_rate speedup"),
        ("moe306_summary.csv mean_tps n_runs", "moe-306/summary.csv decode_rate runs"),
        ("apple_page.csv tok_s change_percent", "apple/page-speculation.csv decode_rate change_percent"),
        ("apple_page_quant.csv tg_tok_s perplexity", "apple/page-quantization.csv decode_rate perplexity"),
        ("apple_page_devices.csv tg_tok_s pp_tok_s", "apple/page-machines.csv decode_rate prompt_rate"),
        ("apple_page_cross.csv tok_s draft_tok_s", "apple/page-remote-drafts.csv decode_rate draft_rate"),
        ("apple_mlx.csv avg_tps std_tps", "apple/mlx.csv decode_rate decode_rate_sd"),
        ("apple_perplexity.csv ppl ppl_std", "apple/perplexity.csv perplexity perplexity_sd"),
        ("apple_devices.csv tg_tps pp_tps", "apple/devices.csv decode_rate prompt_rate"),
        ("apple_multimodel.csv tg_tps pp_tps", "apple/multimodel.csv decode_rate prompt_rate"),
        ("apple_sd_runs.csv n_drafted n_accept", "apple/sd_runs.csv drafted accepted"),
        ("apple_cross_first.csv n_drafted n_accept", "apple/cross_first.csv drafted accepted"),
        ("apple_cross_again.csv eff_tps n_accept", "apple/cross_again.csv decode_rate accepted"),
        ("apple_logs.csv n_drafted n_accept", "apple/logs.csv drafted accepted"),
        ("rtx3090_19_summary.csv pooled_tok_s decode_ms", "rtx3090-19/summary.csv decode_rate predicted_ms"),
        ("rtx3090_19_requests.csv tok_s prompt_n", "rtx3090-19/requests.csv decode_rate prompt_n"),
    ],
)
def test_the_numbers_of_a_document_stand_in_its_packaged_table(original: str, packaged: str) -> None:
    file, *columns = original.split()
    name, *names = packaged.split()
    theirs = [[_value(row[column]) for column in columns] for row in table(file)]
    assert [[_value(row[column]) for column in names] for row in published.cells(name)] == theirs


def _value(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


# --- moe-306 ---------------------------------------------------------------------------------------------------------

MOE_TABLE = "moe-306/tables.csv"


def moe(row: str) -> Ruling:
    return rulings("moe-306")[MOE_TABLE, row]


def test_moe_q4_gamma_16_is_implausible() -> None:
    ruling = moe("Table 5, row 3")
    assert (ruling.claim.speedup, ruling.claim.gamma, ruling.claim.acceptance) == (1.26, 16, pytest.approx(0.002))
    # 0.2 % may be up to 0.25 %: at most 1 + 0.0025 x 16 = 1.04 tokens per target forward, against 1.255.
    assert ruling.claim.speedup is not None
    assert ruling.claim.speedup - 0.005 > 1 + 0.0025 * 16
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-tau")
    assert "1.04" in str(ruling.arithmetic)


def test_the_papers_own_bandwidth_is_above_the_machines() -> None:
    ruling = rulings("moe-306")["moe-306/paper.csv", "section 5.2, baseline"]
    claimed = 20.6 / 0.0181
    assert claimed == pytest.approx(1138, abs=0.5)
    assert claimed > 800
    assert (ruling.verdict, ruling.bound) == ("implausible", "bandwidth-bound")


def test_the_papers_own_rounds_contradict_its_acceptance() -> None:
    ruling = rulings("moe-306")["moe-306/paper.csv", "section 5.2, gamma 16"]
    # 256 tokens in 16 rounds are 16 per round; 0.2 % of 16 drafts and one of its own are 1.03.
    assert 255 - (1 + 16) == 238
    assert (ruling.verdict, ruling.bound) == ("impossible", "conservation")
    assert "speedup-above-tau" in bounds_broken(ruling)


def test_counts_of_runs_are_recovered() -> None:
    recovered = 0
    for row in table("moe306_runs.csv"):
        if row["draft_model"] == "none":
            continue
        claim = rulings("moe-306")["moe-306/runs.csv", row["job_id"]].claim
        if claim.predicted_n is None or claim.steps is None or claim.drafted is None or claim.accepted is None:
            continue
        recovered += 1
        gamma = int(row["draft_len"])
        time_ms = claim.predicted_n * float(row["eval_ms_per_token"])
        assert time_ms == pytest.approx(round(time_ms), abs=1e-6)
        assert 1000 * claim.predicted_n / time_ms == pytest.approx(float(row["tokens_per_sec"]), rel=3e-4)
        assert claim.predicted_n == claim.steps + claim.accepted + 1
        assert claim.drafted == gamma * claim.steps
        assert claim.accepted / claim.drafted == pytest.approx(float(row["draft_acceptance_rate"]), abs=1.5e-5)
        assert 256 < claim.predicted_n <= 256 + gamma + 1
    assert recovered == 233


def test_no_run_below_full_acceptance_could_draft_in_its_time() -> None:
    """Apart from the sweep, drafting alone would have taken longer than the run, or cost more than it gained."""
    for (source, row), ruling in rulings("moe-306").items():
        claim = ruling.claim
        if source != "moe-306/runs.csv" or claim.method == "none" or row.startswith("F_"):
            continue
        assert ruling.verdict == "implausible"
        if claim.drafted is not None and claim.predicted_ms is not None:
            draft = 138.0398 if "0.8B" in claim.label else 110.3962
            noise = audited("moe-306").noise.share
            too_long = 1000 * claim.drafted / draft > (1 + noise) * claim.predicted_ms
            assert too_long == ("draft-time-bound" in bounds_broken(ruling))


def test_the_sweep_accepted_everything_and_still_gained_little() -> None:
    """9 tokens per round and a speedup of 1.2 say what a verification costs: possible runs, an impossible reading."""
    sweep = [
        ruling
        for (source, row), ruling in rulings("moe-306").items()
        if source == "moe-306/runs.csv" and row.startswith("F_sd")
    ]
    assert len(sweep) == 18
    rates = {row["job_id"]: float(row["tokens_per_sec"]) for row in table("moe306_runs.csv")}
    for ruling in sweep:
        claim = ruling.claim
        assert ruling.verdict == "possible"
        assert claim.acceptance == 1
        assert (claim.accepted, claim.drafted, claim.steps) == (232, 232, 29)
        length = claim.row.split("_")[2]
        baseline = fmean(rates[f"F_base_{length}_r{number}"] for number in range(3))
        assert claim.baseline_rate == pytest.approx(baseline)
        # A round takes 9 / rate; eight drafts at 138 tok/s are 58 ms of it. The rest is the verification of 9 tokens,
        # in target forwards of one token: about four, where amortization would have it near one.
        verification_ms = 9000 / rates[claim.row] - 8000 / 138.04
        assert 3.5 < verification_ms / (1000 / baseline) < 4.5


def test_noise_is_that_of_each_study() -> None:
    """Three repeats of 102 configurations, each length of the sweep one; seven logs of two; requests without drafts."""
    assert audited("moe-306").noise.origin.values["configurations"] == 102
    assert audited("moe-306").noise.share == 0.02
    assert audited("rtx3090-19").noise.share == pytest.approx(0.0209, abs=1e-4)
    assert audited("apple").noise.share == pytest.approx(0.0343, abs=1e-4)  # seven logs of two runs


# --- apple -----------------------------------------------------------------------------------------------------------


def apple(source: str, row: str) -> Ruling:
    if row.startswith("line "):
        row = f"{source.removesuffix('.csv')}, {row}"
    return rulings("apple")[f"apple/{source}", row]


def test_the_headline_gain_is_above_what_its_acceptance_permits() -> None:
    ruling = apple("page-speculation.csv", "speculation, row 1")
    assert ruling.claim.speedup == pytest.approx(1.257)
    assert 1.257 > (1 + 0.0335 * 4) * 1.06
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-tau")


def test_every_run_of_the_study_is_broken() -> None:
    """201 tokens each, or 202; the drafts that were counted would take longer than the whole run."""
    drafts = {"0.8B_Q8": 140.19, "2B_Q8": 110.62, "4B_Q2": 72.77, "4B_Q3": 68.75, "4B_Q4": 58.47, "4B_Q6": 61.98}
    prompts = {"code": 27, "text": 10, "math": 20}
    for number, row in enumerate(table("apple_sd_runs.csv"), start=2):
        drafted, accepted, gamma = int(row["n_drafted"]), int(row["n_accept"]), int(row["draft_k"])
        assert drafted // gamma + accepted + 1 in (201, 202)
        seconds = (prompts[row["prompt_type"]] + 201) / float(row["eff_tps"])
        assert drafted / drafts[row["draft"]] > 1.1 * seconds
        ruling = apple("sd_runs.csv", f"line {number}")
        assert ruling.verdict == ("impossible" if ruling.claim.failed_forwards else "implausible")
        assert "draft-time-bound" in bounds_broken(ruling)


def test_the_published_rate_counts_what_the_target_evaluated() -> None:
    # 9B, 0.8B, math: the log prints 221 tokens in 4123.50 ms as total, and 61.356 tok/s for the generation.
    log = next(row for row in table("apple_logs.csv") if row["log"] == "sd_9B_Q8_0.8B_Q8_k4")
    row = table("apple_sd_runs.csv")[2]
    assert float(row["eff_tps"]) == pytest.approx(221 / 4.1235)
    assert float(log["target_total_ms"]) == 4123.50
    assert float(log["decoded_tok_s"]) == pytest.approx(201 / 3.276, abs=0.01)
    assert apple("sd_runs.csv", "line 4").claim.window == "with prompt"
    assert apple("logs.csv", log["log"]).claim.window == "all tokens"


@pytest.mark.parametrize(
    ("log", "rounds", "failed"),
    [
        ("sd_9B_Q8_0.8B_Q8_k4", 708 // 4, 819),
        ("crossdevice_103_M1Max_0.8B_Q8_math", 708 // 4, 819),
        ("sd_35B_Q4_0.8B_Q8_k4", 696 // 4, 801),
        ("sd_4B_Q8_4B_Q4_k4", 600 // 4, 657),
        ("sd_4B_Q8_4B_Q6_k4", 504 // 4, 513),
        ("sd_9B_Q8_2B_Q8_k8", 1512 // 8, 1660),
    ],
)
def test_few_verifications_took_place_in_each_log(log: str, rounds: int, failed: int) -> None:
    """One for each gamma + 1 tokens: the target evaluated 200 tokens after the prompt, at gamma 8 207."""
    ruling = apple("logs.csv", log)
    claim = ruling.claim
    took = 207 // 9 if log.endswith("k8") else 200 // 5
    assert claim.steps == rounds
    assert claim.target_forwards == took
    assert claim.failed_forwards == rounds - took
    assert claim.failed_draft_forwards == failed - (rounds - took)
    assert (ruling.verdict, ruling.bound) == ("impossible", "target-decode-failed")
    assert "conservation" in bounds_broken(ruling)


def test_failures_of_all_logs_add_up() -> None:
    claims = [ruling.claim for (source, _), ruling in rulings("apple").items() if source == "apple/logs.csv"]
    target = sum(claim.failed_forwards or 0 for claim in claims)
    draft = sum(claim.failed_draft_forwards or 0 for claim in claims)
    assert (target, draft, target + draft) == (2259, 12503, 14762)
    assert target + draft == sum(int(row["failed_decodes"]) for row in table("apple_logs.csv"))


def test_rows_whose_log_was_published_carry_its_failures() -> None:
    carrying = [
        (source, row)
        for (source, row), ruling in rulings("apple").items()
        if source != "apple/logs.csv" and ruling.claim.failed_forwards
    ]
    first = [("apple/cross_first.csv", f"cross_first, line {line}") for line in (2, 3, 4, 6, 7, 9, 10)]
    runs = [("apple/sd_runs.csv", f"sd_runs, line {line}") for line in range(4, 32, 3)]
    assert sorted(carrying) == sorted(first + runs)


def test_the_printed_rate_of_every_log_is_all_that_the_target_evaluated_over_its_whole_time() -> None:
    """At gamma 8 these are 228 tokens, where the program emitted 221 with the prompt."""
    rates = {
        f"sd_{row['target']}_{row['draft']}_k{row['draft_k']}": row
        for row in table("apple_sd_runs.csv")
        if row["prompt_type"] == "math"
    }
    rates |= {
        f"crossdevice_{row['rpc_backend']}_{row['draft']}_{row['prompt_type']}": row
        for row in table("apple_cross_first.csv")
    }
    for log in table("apple_logs.csv"):
        tokens = int(log["target_prompt_tokens"]) + int(log["target_single_tokens"]) + 1
        printed = float(rates[log["log"]]["eff_tps"])
        assert printed == pytest.approx(1000 * tokens / float(log["target_total_ms"]), rel=1e-9)


# --- rtx3090-38 ------------------------------------------------------------------------------------------------------


def test_the_second_study_agrees_with_an_earlier_copy_of_it() -> None:
    """Two people copied it: one from its prose, one from its reports, which print more digits."""
    packaged = {
        (it["run"], it["target"], it["method"], it["gamma"]): it for it in published.cells("rtx3090-38/arms.csv")
    }
    compared = 0
    for row in table("qwen38_rtx3090_arms.csv"):
        target = "Qwen3.6-35B-A3B" if "MoE" in row["target"] else "Qwen3.8-27B"
        ours = packaged.get(
            (row["phase"], target, row["arm"].partition(" ")[0].replace("dflash2", "dflash"), row["n_max"])
        )
        if ours is None or "drafter" in row["arm"] or not row["gain_percent"]:
            continue
        for theirs, name in (("gain_percent", "change_percent"), ("low", "ci_low"), ("high", "ci_high")):
            digits = len(row[theirs].partition(".")[2])
            assert not row[theirs] or round(float(ours[name]), digits) == pytest.approx(float(row[theirs]), abs=1e-9)
        compared += 1
    assert compared == 18


def test_facts_and_later_blocks_are_those_of_the_earlier_copy() -> None:
    for original, packaged in (
        ("qwen38_rtx3090_other.csv", "rtx3090-38/other.csv"),
        ("qwen36_later.csv", "rtx3090-aug/later.csv"),
    ):
        ours = {tuple(it[end] for end in ("value", "low", "high")) for it in published.cells(packaged)}
        assert {tuple(it[end] for end in ("value", "low", "high")) for it in table(original)} <= ours


# --- rtx3090-19 ------------------------------------------------------------------------------------------------------


def test_rates_divide_all_tokens_by_the_time_of_all_but_the_first() -> None:
    for row in table("rtx3090_19_requests.csv"):
        n, ms = int(row["predicted_n"]), float(row["predicted_ms"])
        assert float(row["tok_s"]) == pytest.approx(1000 * n / ms, abs=0.001)
    for row in table("rtx3090_19_summary.csv"):
        pooled = 1000 * int(row["generated_tokens"]) / float(row["decode_ms"])
        assert float(row["pooled_tok_s"]) == pytest.approx(pooled, abs=0.001)


def test_full_acceptance_is_by_construction() -> None:
    """Every arm and prompt at exactly 100 %, the slowest ones too: a counter that can say nothing else."""
    with_drafts = [row for row in table("rtx3090_19_summary.csv") if int(row["counted_draft_tokens"])]
    assert all(row["counted_draft_tokens"] == row["counted_draft_accepted"] for row in with_drafts)
    assert all(float(row["pooled_delta_pct"]) < 0 for row in with_drafts)
    said = {
        claim.label
        for (source, _), ruling in rulings("rtx3090-19").items()
        if source == "rtx3090-19/summary.csv" and "audit.by_construction_counted" in codes(ruling.others)
        for claim in [ruling.claim]
    }
    # A few accepted drafts can be luck; fifty are none.
    assert said == {row["config"] for row in with_drafts if int(row["counted_draft_tokens"]) >= 50}
    assert len(said) == 13


def test_a_draft_that_never_drafted() -> None:
    ruling = rulings("rtx3090-19")["rtx3090-19/summary.csv", "summary, line 4"]
    claim: Claim = ruling.claim
    assert (claim.label, claim.drafted, claim.acceptance) == ("draft-qwen3-0.6b", 0, None)
    assert any("fails silently" in str(note) for note in claim.notes)
