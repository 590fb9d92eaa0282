"""Build a native `llama-server` of nearly the embedded engine's version, for comparisons.

The source comes with the source package of llama-cpp-python, which pip downloads and whose checksum is pinned here.
Needs cmake and a C++ compiler; takes about 8 minutes on two cores, once. Prints where the programs are.

    uv run python scripts/build_native.py
    uv run python scripts/build_native.py --cmake=-DGGML_CUDA=ON
    export SPECMETER_LLAMA_SERVER=...   # as printed; or engine: {kind: native, binary: ...} in the experiment

By default the CPU code is that of the wheel (AVX2 on x86-64, whatever this machine has elsewhere); `--tuned` uses
everything that this machine's CPU can do. RPC is always in; on a Mac cmake adds Metal by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from specmeter.models.cache import cache_dir

PACKAGE = "llama-cpp-python==0.3.36"
ARCHIVE = "llama_cpp_python-0.3.36.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
LLAMA_CPP = "llama_cpp_python-0.3.36/vendor/llama.cpp"
TARGETS = ("llama-server", "llama-bench", "llama-quantize", "llama-perplexity", "ggml-rpc-server")
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_RPC=ON",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
)
LIKE_THE_WHEEL = ("-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in ("AVX2", "FMA", "F16C", "BMI2")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to build (default: specmeter's cache folder)")
    parser.add_argument("--tuned", action="store_true", help="use everything that this machine's CPU can do")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cmake", action="append", default=[], metavar="OPTION", help="one more option for cmake")
    args = parser.parse_args()
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None and not (tool == "c++" and os.name == "nt"):
            sys.exit(f"{tool} is not installed\n  fix: install cmake and a C++ compiler, then run this again")
    folder: Path = args.folder or cache_dir() / "native" / (ARCHIVE.removesuffix(".tar.gz") + suffix(args))
    source = folder / LLAMA_CPP
    if not (source / "CMakeLists.txt").is_file():
        fetch(folder)
    build = folder / "build"
    wheel_like = LIKE_THE_WHEEL if platform.machine().lower() in ("x86_64", "amd64") and not args.tuned else ()
    run("cmake", "-S", source, "-B", build, *OPTIONS, *wheel_like, *args.cmake)
    run("cmake", "--build", build, "--config", "Release", "-j", args.jobs, "--target", *TARGETS)
    programs = sorted(file for file in (build / "bin").rglob("*") if file.stem in TARGETS)
    for program in programs:
        print(program)
    server = next((program for program in programs if program.stem == "llama-server"), None)
    if server is None:
        sys.exit(f"{build}: no llama-server was built\n  fix: see what cmake printed above")
    word = "set" if os.name == "nt" else "export"
    print(f"\nmake specmeter use it:\n  {word} SPECMETER_LLAMA_SERVER={server}", file=sys.stderr)


def suffix(args: argparse.Namespace) -> str:
    """Builds with different options do not overwrite each other."""
    options = [*(["tuned"] if args.tuned else []), *args.cmake]
    return "-" + hashlib.sha256(" ".join(options).encode()).hexdigest()[:8] if options else ""


def fetch(folder: Path) -> None:
    """Download the source package, check it, unpack llama.cpp out of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        run(*pip(), "download", "--no-deps", "--no-binary", ":all:", "--dest", name, PACKAGE)
        archive = Path(name) / ARCHIVE
        with archive.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != SHA256:
            sys.exit(f"{ARCHIVE} has SHA-256 {found}, not {SHA256}\n  fix: download again; do not build this one")
        with tarfile.open(archive) as content:
            content.extractall(folder, (file for file in content if file.name.startswith(LLAMA_CPP)), filter="data")


def pip() -> list[str]:
    """pip of this environment, or else through uv, whose environments have none."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
        return [sys.executable, "-m", "pip"]
    if shutil.which("uvx"):
        return ["uvx", "pip"]
    sys.exit("there is neither pip nor uv\n  fix: python -m ensurepip, then run this again")


def run(*command: object) -> None:
    words = [str(word) for word in command]
    print("+", " ".join(words), file=sys.stderr, flush=True)
    # What the programs print goes to stderr, so that stdout holds nothing but the paths.
    if (code := subprocess.run(words, stdout=sys.stderr, check=False).returncode) != 0:
        sys.exit(f"{words[0]} failed with exit code {code}\n  fix: see what it printed above")


if __name__ == "__main__":
    main()
