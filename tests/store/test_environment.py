import re
from pathlib import Path
from typing import Any

from specmeter.record import DeviceUse, EngineIdentity, Gpu, Host, ModelIdentity, Session
from specmeter.store.environment import render_environment
from specmeter.text import markdown_code, markdown_escaped

HOST = Host(
    hostname_sha256="ab" * 32,
    os="Linux",
    os_version="Debian GNU/Linux 12",
    kernel="6.1.0",
    machine="x86_64",
    python="3.11.7",
    specmeter="0.1.0",
    cpu="AMD EPYC 9655",
    physical_cores=96,
    logical_cores=192,
    usable_cores=1.5,
    cpu_flags=("AVX2", "AVX512"),
    governor="performance",
    power_source="mains",
    memory_bytes=8 * 2**30,
    memory_available_bytes=6 * 2**30,
    gpus=(
        Gpu(
            index=0, name="NVIDIA H200", vendor="NVIDIA", memory_bytes=139 * 2**30, driver="570.86", runtime="CUDA 12.8"
        ),
    ),
    load_average=(0.5, 0.25, 0.125),
)
ENGINE = EngineIdentity(
    kind="native",
    version="7166",
    build="7166 (eec1e33a9) with GNU 12",
    binary=str(Path.home() / "llama.cpp/llama-server"),
    binary_sha256="cd" * 32,
    libraries={"libggml.so": "ef" * 32},
)
MODEL = ModelIdentity(
    name="moe",
    reference="bench:moe",
    path="/cache/moe.gguf",
    sha256="12" * 32,
    size_bytes=919_000_000,
    origin="bench",
    timing_only=True,
)


def render(**changes: Any) -> str:
    arguments: dict[str, Any] = {
        "host": HOST,
        "engines": [ENGINE],
        "models": [MODEL],
        "experiment_name": "demo",
        "argvs": {"moe/none": ("llama-server", "-m", "a model.gguf", "--threads", "2")},
        "started_at": 1_795_258_772.0,
        "finished_at": 1_795_258_900.0,
        "state": "complete",
    }
    return render_environment(**(arguments | changes))


def session(arm_id: str, **resolved: Any) -> Session:
    return Session(
        id=f"s-{arm_id}",
        arm_id=arm_id,
        invocation=0,
        block=0,
        position=0,
        argv=(),
        engine=ENGINE,
        started_at=0,
        ready_ms=1,
        resolved=resolved,
        devices=(DeviceUse(device="CUDA0", model_buffer_bytes=2**30),),
        layers_offloaded=(33, 33),
    )


def test_tells_what_a_reader_needs() -> None:
    text = render()
    for fact in (
        "# Benchmark environment: demo",
        "| state | complete |",
        "2026-11-21 10:59:32 UTC",
        "after 0:02:08",
        "96 physical, 192 logical, 1.5 usable",
        "| NVIDIA H200 | 149.3 GB | 570.86 | CUDA 12.8 |",
        "cd" * 32,
        "ef" * 32,
        "12" * 32,
        "919.0 MB",
        "random weights: timing only",
        "llama-server -m 'a model.gguf' --threads 2",
    ):
        assert fact in text
    assert text.endswith("```\n")
    assert "Resolved" not in text
    assert "not yet" in render(finished_at=None)
    assert render(engines=[], argvs={}).count("None was started.") == 2


def test_secrets_never_appear() -> None:
    secret = "tops3cret-value"
    token = "hf_AbCdEfGhIjKlMnOpQrSt"
    text = render(
        argvs={
            "a": ("llama-server", "--api-key", secret, "--hf-token", secret, "-hft", secret, "--max-tokens", "64"),
            "b": (f"--api-key={secret}", f'{{"api_keys": ["{secret}"]}}', f"HF_TOKEN={secret}", token),
            "c": (f"https://user:{secret}@example.org/m.gguf", f"Authorization: Bearer {secret}"),
        },
        engines=[ENGINE.model_copy(update={"build": f"api_key={secret}"})],
        models=[MODEL.model_copy(update={"reference": f"https://me:{secret}@example.org/x"})],
        sessions=[session("a", api_key=secret, nested={"hf_token": secret}, line=f"password: {secret}")],
    )
    assert secret not in text
    assert token not in text
    assert "--max-tokens 64" in text
    assert str(Path.home() / "llama.cpp") not in text


def test_names_are_not_markup() -> None:
    evil = "x | y\n\n# Owned <script>alert(1)</script> [a](http://b) `c` \x1b[31m\u202e*z*"
    text = render(
        experiment_name=evil,
        engines=[ENGINE.model_copy(update={"build": evil, "libraries": {evil: "00"}})],
        models=[MODEL.model_copy(update={"name": evil, "reference": evil})],
        argvs={evil: (evil, "```", "\n```\n# out")},
        host=HOST.model_copy(update={"cpu": evil, "busy_processes": (evil,)}),
        sessions=[session(evil, **{evil: evil})],
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
    outside = re.sub(r"^(`{3,})\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert [line for line in outside.splitlines() if line.startswith("# ")] == [outside.splitlines()[0]]
    spans_removed = re.sub(r"(?<!\\)(`+)(?!`).+?(?<!`)\1(?!`)", "", outside)
    assert "<script" not in spans_removed
    for table in re.findall(r"(?:^\|.*\n?)+", outside, re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1


def test_escaping_keeps_the_characters() -> None:
    assert markdown_escaped("a_b|_c`<d>\n& ~/x ~y~") == r"a_b\|\_c\`&lt;d&gt; &amp; ~/x \~y\~"
    assert [markdown_code(it) for it in ("a`b", "a|b", " \n")] == ["`` a`b ``", r"`a\|b`", ""]
