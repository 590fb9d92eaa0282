"""Signatures of certificates, by real SSH keys."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from programs import write_program
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.store import RunStore, signature

needs_openssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two keys, and a list of signers that knows both."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("anna", "bert"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=60)
    lines = [f"{name}@example.org {(folder / f'{name}.pub').read_text()}" for name in ("anna", "bert")]
    (folder / "signers").write_text("# trusted\n" + "".join(lines))
    return folder


@pytest.fixture
def signed(run: Path, keys: Path) -> Path:
    assert invoke(["check", str(run), "--sign", str(keys / "anna")]) == 0
    return run


@needs_openssh
def test_a_signature_ties_a_run_to_a_key(signed: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(signed)]) == 0
    assert "the signature in certificate.json.sig is not verified" in capsys.readouterr().out
    assert invoke(["check", str(signed), "--sign", str(keys / "anna")]) == 0
    assert f"signed with {keys / 'anna'}, in certificate.json.sig" in capsys.readouterr().out
    assert invoke(["check", str(signed), "--signer", str(keys / "anna.pub")]) == 0
    assert "signed by ED25519 key SHA256:" in capsys.readouterr().out
    for arguments in ([], ["--identity", "anna@example.org"]):
        assert invoke(["check", str(signed), "--signer", str(keys / "signers"), *arguments]) == 0
        assert "signed by anna@example.org, with ED25519 key SHA256:" in capsys.readouterr().out
    assert invoke(["check", str(signed), "--json", "--signer", str(keys / "signers")]) == 0
    told = json.loads(capsys.readouterr().out)["signature"]
    assert (told["holds"], told["identity"]) == (True, "anna@example.org")


@needs_openssh
@pytest.mark.parametrize(
    "signer", [["bert.pub"], ["signers", "--identity", "bert@example.org"], ["signers", "--identity", "-n"]]
)
def test_another_key_or_name(signed: Path, keys: Path, signer: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(signed), "--signer", str(keys / signer[0]), *signer[1:]]) == 1
    assert "not signed by any of these signers" in capsys.readouterr().out


def edit(folder: Path) -> None:
    path = folder / "certificate.json"
    path.write_text(path.read_text().replace('"specmeter"', '"Specmeter"', 1))


def swap(folder: Path) -> None:
    (folder / "certificate.json.sig").write_text(
        "-----BEGIN SSH SIGNATURE-----\nrubbish\n-----END SSH SIGNATURE-----\n"
    )


@needs_openssh
@pytest.mark.parametrize(
    "change",
    [
        edit,
        swap,
        lambda folder: (folder / "certificate.json.sig").unlink(),
        lambda folder: (folder / "certificate.json.sig").write_bytes(b"x" * 2**21),
        lambda folder: (folder / "certificate.json").unlink(),
    ],
    ids=["edited", "rubbish", "gone", "huge", "no certificate"],
)
def test_what_does_not_hold(
    signed: Path, keys: Path, change: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    change(signed)
    assert invoke(["check", str(signed), "--signer", str(keys / "anna.pub")]) == 1
    assert "not signed by any of these signers" in capsys.readouterr().out


@needs_openssh
def test_a_signature_covers_all_that_the_certificate_covers(signed: Path, keys: Path) -> None:
    (signed / "BENCHMARK_ENV.md").write_text("# A faster machine\n")
    assert invoke(["check", str(signed), "--signer", str(keys / "anna.pub")]) == 1


@needs_openssh
def test_verifying_issues_nothing(signed: Path, keys: Path) -> None:
    """A run that lost its certificate would get a new one, and that one is not signed."""
    with RunStore.open(signed) as store:
        store.begin(0.0)
    assert not (signed / "certificate.json.sig").exists()
    assert invoke(["check", str(signed), "--signer", str(keys / "anna.pub")]) == 1
    assert not (signed / "certificate.json").exists()


@needs_openssh
def test_changed_data_is_not_signed(run: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "experiment.yaml").write_text("name: other\n")
    assert invoke(["check", str(run), "--sign", str(keys / "anna")]) == 2
    assert "cannot be signed" in capsys.readouterr().err
    assert not (run / "certificate.json.sig").exists()


@needs_openssh
def test_keys_that_are_none(run: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rubbish = tmp_path / "-f rubbish; $(touch x)"
    rubbish.write_text("no key")
    for arguments in (
        ["--sign", str(tmp_path / "none")],
        ["--sign", str(rubbish)],
        ["--signer", str(tmp_path / "none")],
        ["--signer", str(keys / "anna")],
        ["--signer", str(keys / "anna.pub"), "--identity", "anna"],
        ["--identity", "anna"],
        ["--signer", str(keys / "signers"), "--identity", "an\nna"],
    ):
        assert invoke(["check", str(run), *arguments]) == 2, arguments
        assert "fix:" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@needs_openssh
def test_names_that_look_like_options_or_commands(original: Path, keys: Path, tmp_path: Path) -> None:
    folder = tmp_path / "-n $(touch x) 'run'"
    shutil.copytree(original, folder)
    key = tmp_path / "-key"
    shutil.copy(keys / "anna", key)
    key.chmod(0o600)
    assert invoke(["check", str(folder), "--sign", str(key)]) == 0
    assert invoke(["check", str(folder), "--signer", str(keys / "anna.pub")]) == 0
    assert not (tmp_path / "x").exists()


def test_without_openssh(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("ssh-ed25519 AAAA me\n")
    (run / "certificate.json.sig").write_text("x")
    monkeypatch.setenv("PATH", str(tmp_path))
    for flag in ("--sign", "--signer"):
        assert invoke(["check", str(run), flag, str(key)]) == 2
        assert "OpenSSH" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_an_openssh_that_hangs_or_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh-keygen"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    key = tmp_path / "key"
    key.write_text("ssh-ed25519 AAAA me\n")
    write_program(program, "#!/bin/sh\necho 'unknown option -- Y' >&2\nexit 1\n")
    with pytest.raises(UsageError, match="too old"):
        signature.sign(b"x", key)
    write_program(program, "#!/bin/sh\nexec sleep 30\n")
    monkeypatch.setattr(signature, "_SIGN_TIMEOUT_S", 0.2)
    with pytest.raises(UsageError, match="did not answer"):
        signature.sign(b"x", key)
