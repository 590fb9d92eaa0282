"""Signatures of certificates, by the user's own SSH key: a published run can be tied to a person.

What is signed is certificate.json, which hashes the whole run. Signing and verifying are OpenSSH's (`ssh-keygen -Y
sign` and `-Y verify`, since OpenSSH 8.0), in the namespace `specmeter`, so that no signature made for anything else
counts. Nothing goes through a shell; what is signed is given on standard input, and paths are absolute, so that no name
of a file can be taken for an option.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specmeter.errors import UsageError
from specmeter.files import read_inside, read_named
from specmeter.store.run import SIGNATURE_NAME

NAMESPACE = "specmeter"
_MAX_BYTES = 1024 * 1024
"""Of a key, a signature, or a list of signers."""
_VERIFY_TIMEOUT_S = 30.0
_SIGN_TIMEOUT_S = 120.0
"""The user may have to type a passphrase, or to touch a key."""
_ANYBODY = "*"
_KEY = re.compile(r" with (\S+ key \S+)$")
_PUBLIC_KEY = re.compile(r"(?:ssh-|ecdsa-|sk-)[A-Za-z0-9@.-]+ +[A-Za-z0-9+/]+=*(?: |$)")
_INSTALL = "install OpenSSH 8.0 or newer (`ssh-keygen`), which comes with Linux, macOS and Windows"


@dataclass(frozen=True)
class Verified:
    """What became of a signature."""

    holds: bool
    why_not: str = ""
    """Why it does not hold; empty where it does."""
    identity: str | None = None
    """The signer's name in the list of allowed signers; None for a bare key, which has no name."""
    key: str | None = None
    """Kind and fingerprint of the key: `ED25519 key SHA256:...`."""


def sign(content: bytes, key: Path) -> bytes:
    """The signature of `content` by a private key (or by a public one whose private half an agent holds).

    Raises `UsageError` where there is no `ssh-keygen`, or it cannot use the key.
    """
    _read(key, "--sign")
    done = _ssh_keygen(["-Y", "sign", "-f", _plain(key), "-n", NAMESPACE], content, _SIGN_TIMEOUT_S)
    if done.returncode != 0 or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise UsageError(
            f"--sign {key}: ssh-keygen did not sign with this key ({_said(done)})",
            fix="use a private SSH key, such as ~/.ssh/id_ed25519",
        )
    return done.stdout


def verify(content: bytes, folder: Path, signers: Path, identity: str | None = None) -> Verified:
    """Whether the signature in a run folder is one of `content`, by one of `signers`: a public key, or a list of
    allowed signers (see ssh-keygen(1)), of which `identity` asks for one.

    Raises `UsageError` where that cannot be found out.
    """
    if identity is not None and (not identity or not identity.isprintable()):
        raise UsageError(f"--identity {identity!r}: is not a name", fix="use a name from the list of signers")
    text = _read(signers, "--signer").decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if "PRIVATE KEY-----" in text:
        raise UsageError(f"--signer {signers}: is a private key", fix=f"use the public key, {signers.name}.pub")
    if not any(_PUBLIC_KEY.search(line) for line in lines):
        raise UsageError(f"--signer {signers}: contains no key", fix="use a public key, or a list of allowed signers")
    bare = _PUBLIC_KEY.match(lines[0]) is not None
    if bare and identity is not None:
        raise UsageError(
            f"--identity {identity}: {signers} is a single key without a name",
            fix=f"write `{identity} {lines[0].split()[0]} ...` to a list of allowed signers, or leave --identity out",
        )
    try:
        signature = read_inside(folder, SIGNATURE_NAME, _MAX_BYTES)
    except OSError as error:
        return Verified(holds=False, why_not=f"the run is not signed ({SIGNATURE_NAME}: {error.strerror})")
    with tempfile.TemporaryDirectory(prefix="specmeter-") as scratch:
        signed, allowed = Path(scratch) / "signature", Path(scratch) / "signers"
        signed.write_bytes(signature)
        if not bare:
            return _by_list(content, signed, signers, identity)
        allowed.write_text("".join(f"{_ANYBODY} {line}\n" for line in lines), encoding="utf-8")
        return _by_list(content, signed, allowed, None, bare=True)


def _by_list(content: bytes, signature: Path, allowed: Path, identity: str | None, *, bare: bool = False) -> Verified:
    files = ["-f", _plain(allowed), "-s", _plain(signature)]
    names = ["specmeter"] if bare else [identity] if identity is not None else _principals(content, files)
    why_not = "no key in the list of signers made it"
    for name in names:
        arguments = ["-Y", "verify", *files, "-I", name, "-n", NAMESPACE]
        done = _ssh_keygen(arguments, content, _VERIFY_TIMEOUT_S)
        said = _said(done)
        if done.returncode == 0:
            key = _KEY.search(said)
            return Verified(holds=True, identity=None if bare else name, key=key.group(1) if key else said)
        of = f"the key of {name}" if identity is not None else "that key" if bare else "a key in the list of signers"
        why_not = f"the certificate was changed since, or {of} did not make it ({said})"
    return Verified(holds=False, why_not=why_not)


def _principals(content: bytes, files: Sequence[str]) -> list[str]:
    """Names that the list of signers has for the key that signed."""
    done = _ssh_keygen(["-Y", "find-principals", *files], content, _VERIFY_TIMEOUT_S)
    if done.returncode != 0:
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [name for line in lines for name in line.split(",") if name.strip()]


def _ssh_keygen(arguments: Sequence[str], content: bytes, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise UsageError("ssh-keygen was not found, so signatures cannot be made or verified", fix=_INSTALL)
    try:
        done = subprocess.run([program, *arguments], input=content, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"ssh-keygen did not answer within {timeout_s:g} s", fix="unlock the key (`ssh-add`), and try again"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{program}: cannot be run ({error})", fix=_INSTALL) from None
    if b"option -- Y" in done.stderr or b"illegal option" in done.stderr:
        raise UsageError(f"{program}: is too old to sign files", fix=_INSTALL)
    return done


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """What ssh-keygen printed last: the prompt for a passphrase may stand before it."""
    text = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300].rstrip(".") if lines else f"exit code {done.returncode}"


def _plain(path: Path) -> str:
    """A path that begins with no dash and means the same in any folder."""
    return str(path.expanduser().absolute())


def _read(path: Path, flag: str) -> bytes:
    """A small file. Raises `UsageError`."""
    try:
        content = read_named(path.expanduser(), _MAX_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(f"{flag} {path}: cannot be read ({why})", fix="check the path") from None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{flag} {path}: too large for a key", fix="use a key, or a list of allowed signers")
    return content
