"""From an arm to flags and fields: every method, old and new names, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_fixtures import arm, launch
from pydantic import ValidationError

from specmeter.engines import check_arm
from specmeter.engines.llama_cpp.child import assign
from specmeter.engines.llama_cpp.options import OPTIONS, known_flags, to_fields, to_flags
from specmeter.engines.llama_cpp.spec import METHOD_OPTIONS, METHODS, server_options
from specmeter.errors import EngineStartError, ExperimentError
from specmeter.record import Arm, EngineSettings, MethodName

NEW = frozenset(flag for option in OPTIONS.values() for flag in option.flags[:1])

OLD_HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context
                                        (env: LLAMA_ARG_CTX_SIZE)
-md,   --model-draft FNAME              draft model for speculative decoding
--draft-max, --draft, --draft-n N       number of tokens to draft (default: 16)
--draft-min, --draft-n-min N            minimum number of draft tokens
--draft-p-min P                         minimum speculative decoding probability (greedy)
--spec-draft-threads, --threads-draft
                                        N
                                        number of threads
--no-mmap                               do not memory-map model
"""


def options(tmp_path: Path, arm: Arm, draft: str | None = None) -> dict[str, Any]:
    return server_options(launch(tmp_path, arm, draft=draft), default_threads=3)


def test_every_method_is_known() -> None:
    assert set(METHOD_OPTIONS) == {"none", *(method.name for method in METHODS)}
    for method in METHODS:
        always = {"gamma"} if method.name == "ngram-cache" else set[str]()  # always 8: there is no option for it
        assert set(method.parameters) - always == set(METHOD_OPTIONS[method.name])
    assert {option for fields in METHOD_OPTIONS.values() for option in fields.values()} <= set(OPTIONS)


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_fields_exist_in_the_wheel(tmp_path: Path, method: MethodName) -> None:
    xllamacpp: Any = pytest.importorskip("xllamacpp")
    honoured = METHOD_OPTIONS[method]
    values = {"gamma": 8, "gamma_min": 3, "p_min": 0.5, "ngram_n": 4, "ngram_min_hits": 2}
    asked = {field: value for field, value in values.items() if field in honoured}
    settings = {
        "kv_type_k": "q8_0",
        "kv_type_v": "iq4_nl",
        "draft_kv_type_v": "bf16",
        "flash_attention": "off",
        "gpu_layers": 1,
        "draft_gpu_layers": 2,
        "batch": 64,
        "ubatch": 32,
        "mmap": False,
        "prompt_cache": True,
    }
    fields = to_fields(options(tmp_path, arm(methods=(method,), draft="d", engine=settings, **asked), "draft-small"))
    params = xllamacpp.CommonParams()
    for path, value in fields.items():
        assign(params, path, value)
    assert params.speculative.types == [
        getattr(xllamacpp.common_speculative_type, "COMMON_SPECULATIVE_TYPE_" + method.upper().replace("-", "_"))
    ]
    assert params.cache_type_v == xllamacpp.ggml_type.GGML_TYPE_IQ4_NL
    assert params.flash_attn_type == xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    assert params.speculative.draft.cpuparams.n_threads == 1


def test_assigning_what_is_not_there() -> None:
    xllamacpp: Any = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    with pytest.raises(AttributeError):
        assign(params, "speculative.nothing", 1)
    with pytest.raises(AttributeError):
        assign(params, "speculative.types", ["COMMON_SPECULATIVE_TYPE_NO_SUCH"])


def test_flags_of_a_new_server(tmp_path: Path) -> None:
    both = arm(methods=("ngram-map-k", "draft-simple"), draft="d", gamma=4, p_min=0.5, ngram_n=5, ngram_min_hits=2)
    flags = " ".join(to_flags(options(tmp_path, both, "draft-small"), NEW))
    for part in (
        "--spec-type ngram-map-k,draft-simple",
        "--spec-draft-n-max 4",
        "--spec-draft-p-min 0.5",
        "--spec-ngram-map-k-size-m 4",
        "--spec-ngram-map-k-size-n 5",
        "--spec-ngram-map-k-min-hits 2",
        "--fit off",
        "--parallel 1",
        "--no-cache-prompt --cache-ram 0 --ctx-checkpoints 0",
        "--ctx-size 512",
    ):
        assert part in flags


def test_flags_of_an_old_server(tmp_path: Path) -> None:
    known = known_flags(OLD_HELP) | {"--model", "--parallel", "--threads", "--threads-batch", "--metrics"}
    simple = arm(methods=("draft-simple",), draft="d", gamma=4, gamma_min=1, p_min=0.5, engine={"mmap": False})
    flags = " ".join(to_flags(options(tmp_path, simple, "draft-small"), known))
    assert "--draft-max 4 --draft-min 1 --draft-p-min 0.5" in flags
    assert "--threads-draft 1" in flags or "--spec-draft-threads 1" in flags
    assert flags.count("--no-mmap") == 1
    assert "--cache-ram" not in flags
    with pytest.raises(EngineStartError, match="--spec-type"):
        to_flags(options(tmp_path, arm(methods=("ngram-cache",))), known)


def test_removed_flags_are_not_known() -> None:
    known = known_flags(
        "--spec-draft-n-max N                    number of tokens\n"
        "--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or\n"
        "                                        --spec-ngram-mod-n-max\n"
        "--draft-min, --draft-n-min N            the argument has been\n"
        "                                        removed. use another\n"
    )
    assert known == {"--spec-draft-n-max"}


def test_synthetic_rates_and_kv_types_in_both_spellings(tmp_path: Path) -> None:
    control = arm(methods=("draft-simple",), draft="d", gamma=2, synthetic_rates=(1.0, 0.25))
    asked = options(tmp_path, control, "draft-small")
    assert "--spec-synth-rates 1.0,0.25" in " ".join(to_flags(asked, NEW))
    assert to_fields(asked)["speculative.synth_rates"] == [1.0, 0.25]


def test_remote_machines_are_named_before_their_devices(tmp_path: Path) -> None:
    there = {"rpc": ("10.0.0.2:50052", "far.example:1"), "draft_devices": ("RPC1",)}
    asked = options(tmp_path, arm(methods=("draft-simple",), draft="d", engine=there), "draft-small")
    flags = to_flags(asked, NEW)
    assert flags[flags.index("--rpc") + 1] == "10.0.0.2:50052,far.example:1"
    assert flags.index("--rpc") < flags.index("--spec-draft-device")
    with pytest.raises(ExperimentError, match="rpc: the embedded engine does not have this setting"):
        to_fields(asked)


def test_plain_decoding_is_offered_no_remote_machine(tmp_path: Path) -> None:
    baseline = arm(engine={"rpc": ("10.0.0.2:50052",), "draft_devices": ("RPC0",)})
    assert "rpc" not in options(tmp_path, baseline)
    target = arm(engine={"rpc": ("10.0.0.2:50052",), "devices": ("RPC0",)})
    assert options(tmp_path, target)["rpc"] == ["10.0.0.2:50052"]


def test_remote_machines_that_hold_nothing() -> None:
    idle = arm(methods=("draft-simple",), draft="d", engine={"rpc": ("10.0.0.2:50052",)})
    with pytest.raises(ExperimentError, match="no model is placed on them"):
        check_arm("native", idle, has_draft=True)


@pytest.mark.parametrize(
    "address", ["10.0.0.2", "10.0.0.2:0", "10.0.0.2:65536", ":1", "::1:50052", "a b:1", "-x:1", "h:1 --x"]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValidationError, match="is neither HOST:PORT"):
        EngineSettings.model_validate({"rpc": [address]})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"methods": ("draft-simple",)}, "needs a draft model"),
        ({"methods": ("none", "ngram-mod")}, "cannot be combined with other methods"),
        ({"methods": ("ngram-mod", "ngram-mod")}, "repeated"),
        ({"methods": ("ngram-cache",), "gamma": 4}, "ngram-cache always drafts up to 8"),
        ({"methods": ("none",), "gamma": 4}, "gamma has no effect"),
        ({"methods": ("ngram-simple",), "p_min": 0.5}, "p_min has no effect"),
        ({"methods": ("ngram-simple",), "ngram_min_hits": 2}, "ngram_min_hits has no effect"),
        ({"methods": ("ngram-mod",), "gamma": 4, "gamma_min": 5}, "every draft would be discarded"),
        ({"methods": ("ngram-mod",), "gamma": 2, "synthetic_rates": (1.0,)}, "1 rates and gamma is 2"),
        ({"methods": ("ngram-mod",), "gamma": 2, "synthetic_rates": (0.1, 0.2)}, "increase with position"),
        ({"synthetic_rates": (0.5,)}, "need a method"),
    ],
)
def test_arms_that_cannot_be_honoured(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError, match=says):
        check_arm("native", arm(**changes), has_draft=False)


def test_ngram_cache_with_its_own_gamma() -> None:
    check_arm("native", arm(methods=("ngram-cache",), gamma=8), has_draft=False)
