"""The command `specmeter check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmeter.errors import StoreError, UsageError
from specmeter.show.check_report import of_advice, report
from specmeter.show.terminal.console import errors, output, say_json
from specmeter.show.terminal.report import print_report, print_reports
from specmeter.store import RunStore, signature
from specmeter.store.locate import ADVISED, find_run, sort_of
from specmeter.store.reader import certificate_file
from specmeter.store.run import SIGNATURE_NAME, write_document
from specmeter.validity.inspection import Inspection, inspect
from specmeter.validity.inspection import certify_run as issue_run

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(name="check")
@click.argument("run", default="latest")
@click.option("--all", "every", is_flag=True, help="List every check, including passed and inapplicable ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--sign",
    metavar="KEY",
    type=click.Path(path_type=Path),
    help="Sign the certificate with this SSH key, into certificate.json.sig.",
)
@click.option(
    "--signer",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Verify the signature against a public SSH key or a list of allowed signers.",
)
@click.option("--identity", metavar="NAME", help="Required signer in that list.")
def command(run: str, every: bool, as_json: bool, sign: Path | None, signer: Path | None, identity: str | None) -> int:
    """Check RUN again from its raw data: can its numbers be trusted?

    RUN is a folder, the name of one under specmeter-runs/, or `latest` (the default). Every check is recomputed, and
    the data is compared with the hashes in its certificate, so later changes are noticed. An interrupted run gets a
    certificate. Of an advice all stages and the answer are checked, of a study every run.

    \b
    Examples:
      specmeter check
      specmeter check specmeter-runs/demo-20261121-101500 --all
      specmeter check latest --json | jq '.arms'
      specmeter check specmeter-runs/advise-big-20261121-201500
      specmeter check latest --sign ~/.ssh/id_ed25519
      specmeter check downloaded/run --signer anna.pub
      specmeter check downloaded/run --signer allowed_signers --identity anna@example.org

    Exit codes: 0 valid or suspect, 1 invalid, or the signature is wrong, 2 wrong input.
    """
    if identity is not None and signer is None:
        raise UsageError(f"--identity {identity}: no list of signers given", fix="add --signer FILE")
    folder = find_run(run)
    sort = sort_of(folder)
    if sort == "study":
        from specmeter.advise.schedule import runs_of

        _refuse_signature(folder, sign or signer)
        return _check_runs(runs_of(folder), every=every, as_json=as_json)
    composed = sort in ADVISED
    look = _inspect_advice if composed else _inspect
    inspection, issued = look(folder, certify=signer is None)
    if sign is not None:
        _sign(folder, inspection, sign)
    verified = None if signer is None else _verify(folder, signer, identity)
    if as_json:
        say_json(_document(inspection, verified))
    else:
        told = of_advice(folder, inspection, issued=issued) if composed else None
        print_report(told or report(folder, inspection, issued=issued, every=every))
        _print_signature(folder, sign, verified)
    refused = verified is not None and not verified.holds
    return 1 if inspection.certificate.verdict == "invalid" or refused else 0


def _refuse_signature(folder: Path, given: Path | None) -> None:
    if given is not None:
        from specmeter.advise.schedule import runs_of

        raise UsageError(f"{folder}: a study, whose runs are signed one by one", fix=f"give {runs_of(folder)[0]}")


def _check_runs(runs: Sequence[Path], *, every: bool, as_json: bool) -> int:
    """Each run of a study."""
    found = {run: _inspect(run, certify=True) for run in runs}
    if as_json:
        say_json({str(run): _document(inspection, None) for run, (inspection, _) in found.items()})
    else:
        print_reports({str(it): report(it, seen, issued=new, every=every) for it, (seen, new) in found.items()})
    return 1 if any(seen.certificate.verdict == "invalid" for seen, _ in found.values()) else 0


def _document(inspection: Inspection, verified: signature.Verified | None) -> dict[str, Any]:
    document = inspection.certificate.model_dump(mode="json")
    document["findings"] = [finding.model_dump(mode="json", exclude_none=True) for finding in inspection.findings]
    document["covered"] = list(inspection.covered)
    document["not_covered"] = list(inspection.uncovered)
    return document if verified is None else document | {"signature": asdict(verified)}


def _signed(folder: Path) -> bytes | None:
    """What signatures are of: certificate.json, where it is the run's; None where there is none."""
    if sort_of(folder) in ADVISED:
        return certificate_file(folder)
    with RunStore.open(folder, readonly=True) as store:
        return store.certificate_file() if store.certificate() is not None else None


def _sign(folder: Path, inspection: Inspection, key: Path) -> None:
    content = _signed(folder)
    changed = [str(it.message) for it in inspection.findings if it.check == "data-changed" and it.severity == "invalid"]
    if content is None or changed:
        why = changed[0] if changed else "it has no certificate"
        raise UsageError(f"{folder}: cannot be signed: {why}", fix="run `specmeter check` without --sign to see why")
    write_document(folder, SIGNATURE_NAME, signature.sign(content, key))


def _verify(folder: Path, signer: Path, identity: str | None) -> signature.Verified:
    content = _signed(folder)
    if content is None:
        return signature.Verified(holds=False, why_not="it has no certificate")
    return signature.verify(content, folder, signer, identity)


def _inspect(folder: Path, *, certify: bool) -> tuple[Inspection, bool]:
    """(inspection, whether a certificate was issued just now)."""
    with RunStore.open(folder, readonly=True) as store:
        if store.certificate() is not None or not certify:
            return inspect(store), False
    try:
        with RunStore.open(folder) as store:
            inspection = issue_run(store)
            return inspection, not inspection.refuted
    except StoreError as error:
        errors().say(f"not certified: {error.message}", wrap=False)
    with RunStore.open(folder, readonly=True) as store:
        return inspect(store), False


def _inspect_advice(folder: Path, *, certify: bool) -> tuple[Inspection, bool]:
    from specmeter.advise.schedule import inspect_schedule
    from specmeter.advise.verify_advice import inspect_advice, keep_certificate

    inspection = inspect_advice(folder) if sort_of(folder) == "advice" else inspect_schedule(folder)
    try:
        return inspection, certify and keep_certificate(folder, inspection)
    except StoreError as error:
        errors().say(f"not certified: {error.message}", wrap=False)
    return inspection, False


def _print_signature(folder: Path, key: Path | None, verified: signature.Verified | None) -> None:
    screen = output()
    if key is not None:
        screen.say(f"signed with {key}, in {SIGNATURE_NAME}", wrap=False)
    if verified is None:
        if key is None and (folder / SIGNATURE_NAME).exists():
            screen.say(f"the signature in {SIGNATURE_NAME} is not verified; verify it with --signer FILE", wrap=False)
    elif verified.holds:
        by = f"{verified.identity}, with {verified.key}" if verified.identity else verified.key
        screen.say(f"signed by {by}", wrap=False)
    else:
        screen.say(f"not signed by any of these signers: {verified.why_not}", wrap=False)
