"""Bench models are called so wherever a number may be read: sentences, tables, legends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

import moe306_data
import ratio_data
from specmeter.messages import Message, words
from specmeter_studies import find
from specmeter_studies.study import StudyData, StudyFindings

SPEED = ratio_data.data(
    "apple-sd",
    {"9B_Q8": 30.0, "0.8B_Q8": 100.0, "2B_Q8": 60.0},
    [ratio_data.Made("9B_Q8", "0.8B_Q8", 4, 1.3, 0.82), ratio_data.Made("9B_Q8", "2B_Q8", 4, 1.1, 0.9)],
    models=[
        ratio_data.ModelUsed(name=name, reference=f"bench:{name}", stand_in=True)
        for name in ("9B_Q8", "0.8B_Q8", "2B_Q8")
    ],
)
EXPERTS = moe306_data.study(1.3)
MIXTURES = replace(
    EXPERTS, models=tuple(it.model_copy(update={"reference": f"bench:{it.name}"}) for it in EXPERTS.models)
)
BARE = re.compile(
    r"(?<!bench )(?<!bench Dense )(?<![\w./-])(?:(?:9B|0\.8B|2B)_Q8|MoE Q[48]|Dense \d|(?:0\.8B|2B) draft)"
)


def texts(found: StudyFindings) -> Iterator[str]:
    say = words().render
    yield from (say(claim.found) for claim in found.claims if claim.ruling != "does not apply here")
    for table in found.tables:
        yield from (cell.text if isinstance(cell.text, str) else say(cell.text) for row in table.rows for cell in row)
    for figure in found.figures:
        for point in figure.points:
            for text in (point.series, point.facet, point.label, point.name, point.x):
                yield say(text) if isinstance(text, Message) else str(text)
    yield from (arm.target for arm in found.data.arms)
    yield from (model.name for model in found.data.models)


@pytest.mark.parametrize("data", [SPEED, MIXTURES], ids=["apple-sd", "moe-306"])
def test_every_name_of_a_stand_in_says_so(data: StudyData) -> None:
    said = list(texts(find(data.study).findings(data)))
    assert sum("bench " in text for text in said) > 10
    assert [text for text in said if BARE.search(text)] == []


def test_small_real_models_are_called_stand_ins() -> None:
    models = tuple(it.model_copy(update={"reference": "a.gguf", "stand_in": True}) for it in SPEED.models)
    said = list(texts(find(SPEED.study).findings(replace(SPEED, models=models))))
    assert sum("stand-in " in text for text in said) > 10
    assert not any("bench " in text for text in said)


def test_other_models_keep_their_names() -> None:
    assert not any("bench" in text for text in texts(find("moe-306").findings(EXPERTS)))
