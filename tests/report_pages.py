"""A page as a browser sees it, and a run whose every string attacks."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.cli import invoke
from specmeter.store import RunStore
from specmeter.store.integrity import hash_data

if TYPE_CHECKING:
    from playwright.sync_api import Page

ATTACK = (
    "</script></style></pre></title><script>window.attacked = 1</script><img src=x onerror=window.attacked=2>"
    "<svg onload=window.attacked=3>\"'`{{7*7}}{% raw %}${attacked} javascript:attacked() --> ]]>"
    "\u202egnp.exe \u2066\u0000\u0007\u001b[31m\u2028\u0085 http://attacker.example/"
)
LEFT = {"role", "methods", "format", "origin", "status", "severity", "scope", "verdict", "state", "power_source"}
LEFT |= {
    "flash_attention",
    "kv_type_k",
    "kv_type_v",
    "basis",
    "source",
    "path",
    "session_id",
    "prompt_sha256",
    "unit",
    "refused_draft",
    "by",
}
VERDICTS = {"valid", "suspect", "invalid"}


class Looked:
    """A page, with what it said and asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    @property
    def network(self) -> list[str]:
        """Requests for anything but the file itself and what is written in it."""
        return [url for url in self.asked if not url.startswith(("file:", "data:"))]

    def run(self, script: str) -> Any:
        """The value of a script in the page."""
        return self.page.evaluate(script)

    def until(self, script: str) -> None:
        """Wait until a script in the page is true.

        The page forbids `eval`, which Playwright's own waiting uses from its second look on.
        """
        deadline = time.monotonic() + 30
        while not self._holds(script):
            assert time.monotonic() < deadline, script
            self.page.wait_for_timeout(20)

    def _holds(self, script: str) -> bool:
        try:
            return bool(self.run(script))
        except Exception as error:
            if "context was destroyed" not in str(error):  # the page is just being replaced by the next one
                raise
            return False


def write_hostile(folder: Path) -> None:
    """Append `ATTACK` to every string in the run that is free to be anything, names included."""
    database = sqlite3.connect(folder / "run.sqlite")
    with database:
        for table in (
            "host",
            "arm",
            "prompt",
            "model",
            "engine",
            "session",
            "pair",
            "finding",
            "certificate",
            "prediction",
        ):
            for rowid, text in database.execute(f"SELECT rowid, json FROM {table}").fetchall():
                changed = json.dumps(_attacking(json.loads(text), ""))
                database.execute(f"UPDATE {table} SET json = ? WHERE rowid = ?", (changed, rowid))
        for table, columns in {
            "plan": ("arm_id", "prompt_id"),
            "request": ("arm_id", "prompt_id", "kind"),
            "arm": ("id",),
            "prompt": ("id",),
            "model": ("name",),
            "prediction": ("arm_id",),
        }.items():
            for column in columns:
                database.execute(f"UPDATE {table} SET {column} = {column} || ?", (ATTACK,))
        experiment = json.loads(database.execute("SELECT experiment_json FROM run").fetchone()[0])
        experiment["name"] += ATTACK
        database.execute(
            "UPDATE run SET experiment_json = ?, experiment_yaml = experiment_yaml || ?, reason = ?, interrupted = 1",
            (json.dumps(experiment), ATTACK, ATTACK),
        )
    database.close()
    # Certified as it is: a run that was changed since shows next to nothing.
    with RunStore.open(folder) as store:
        certificate, findings = store.certificate(), tuple(store.findings())
        assert certificate is not None
        store.set_certificate(certificate.model_copy(update={"data": hash_data(store)}), findings)


def _attacking(value: Any, key: str) -> Any:
    if key == "traits":  # names in them are read strictly: other ones are refused with the run
        return value
    if isinstance(value, dict):
        if set(value) <= VERDICTS:
            return value
        keys_are_free = key in ("arms", "data", "evidence", "libraries", "resolved")
        return {name + ATTACK if keys_are_free else name: _attacking(it, name) for name, it in value.items()}
    if isinstance(value, list):
        return [_attacking(it, key) for it in value]
    if isinstance(value, str) and key not in LEFT and value not in VERDICTS:
        return value + ATTACK
    return value


def measured(folder: Path, experiment: str) -> Path:
    """A run of an experiment."""
    file = folder / "experiment.yaml"
    file.write_text(experiment, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) in (0, 1)
    return folder / "run"
