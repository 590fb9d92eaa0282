"""Write src/specmeter/show/page/assets/vega.js: the chart library that every report carries within itself.

    uv run python scripts/make_vega.py

Vega, Vega-Lite and Vega's interpreter come from the npm registry (through `npm pack`) in exactly these versions, and
their checksums are pinned here. The interpreter evaluates Vega's expressions without `new Function`, so that a page may
forbid `eval`. It is published as a module only; here it takes what it imports from the bundle before it. Versions are
those inside vl-convert-python, so that a figure in a paper is the chart on the page.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ASSET = Path(__file__).resolve().parent.parent / "src" / "specmeter" / "show" / "page" / "assets" / "vega.js"
SOURCES = (
    ("vega@6.2.0", "build/vega.min.js", "ea6a5936381d06f912466354e2b6a20eb66c4d41f1ca9dff1e0236dfee6ee392"),
    ("vega-lite@6.4.2", "build/vega-lite.min.js", "3cef62eb552b03bc3de6b97c830c1118e2ba64f662530088c9af9e0fab370523"),
    (
        "vega-interpreter@2.2.1",
        "build/vega-interpreter.js",
        "e900e82bfa450c113ba70c5af8935caed9e52ef570445c1b4f40d38f2cfff71e",
    ),
)
"""(package, file in it, SHA-256 of that file)."""
IMPORT = "import { ascending, isString, DisallowedObjectProperties } from 'vega-util';"
EXPORT = "export { expression as expressionInterpreter };"


def main() -> None:
    parts: list[str] = []
    for package, name, checksum in SOURCES:
        text, license_text = fetch(package, name, checksum)
        if package.startswith("vega-interpreter"):
            text = as_script(text)
        lines = "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL="))
        parts.append(f"/*! {package}\n{license_text}*/\n{lines}\n")
    bundle = "".join(parts)
    if "</script" in bundle.lower():
        sys.exit("the bundle would end the script element that holds it")
    ASSET.write_text(bundle, encoding="utf-8", newline="\n")
    print(f"{ASSET.name}: {len(bundle):,} bytes")


def fetch(package: str, name: str, checksum: str) -> tuple[str, str]:
    """(the file, the package's licence); vega-interpreter has vega's, which its own repository shares."""
    with tempfile.TemporaryDirectory() as scratch:
        packed = subprocess.run(
            ["npm", "pack", package, "--silent"], cwd=scratch, check=True, capture_output=True, text=True
        )
        with tarfile.open(Path(scratch) / packed.stdout.split()[-1]) as archive:
            data = read(archive, f"package/{name}")
            if hashlib.sha256(data).hexdigest() != checksum:
                sys.exit(f"{package} {name}: SHA-256 is {hashlib.sha256(data).hexdigest()}, not {checksum}")
            names = archive.getnames()
            license_text = read(archive, "package/LICENSE").decode() if "package/LICENSE" in names else LICENSE
    return data.decode(), license_text


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        sys.exit(f"{name}: not in the package")
    return file.read()


def as_script(module: str) -> str:
    """The interpreter as a plain script that adds itself to `vega`."""
    if IMPORT not in module or EXPORT not in module:
        sys.exit("vega-interpreter imports or exports something else now")
    body = module.replace(IMPORT, IMPORT.replace("import", "const").replace("from 'vega-util'", "= vega"))
    return f"(function () {{\n{body.replace(EXPORT, 'vega.expressionInterpreter = expression;')}}})();"


LICENSE = "BSD-3-Clause, Copyright (c) 2015-2023, University of Washington Interactive Data Lab; as vega above.\n"

if __name__ == "__main__":
    main()
