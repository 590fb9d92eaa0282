"""Workload entries of an experiment file: told apart by source, strict about everything else."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from specmeter.workloads.spec import ALL_KINDS, BenchWorkload, FileWorkload, LengthWorkload, WorkloadSpec

SPEC: TypeAdapter[Any] = TypeAdapter(WorkloadSpec)


def test_source_chooses_the_model_and_its_defaults() -> None:
    bench = SPEC.validate_python({"source": "bench"})
    assert bench == BenchWorkload(source="bench", name="bench", format="completion", kinds=ALL_KINDS, per_kind=2)
    assert isinstance(SPEC.validate_python({"source": "length", "lengths": [32, 64]}), LengthWorkload)
    assert isinstance(SPEC.validate_python({"source": "file", "paths": ["a.jsonl"]}), FileWorkload)


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({}, "source"),
        ({"source": "web"}, "expected tags"),
        ({"source": "bench", "kind": ["fact"]}, "kind"),
        ({"source": "bench", "kinds": ["poem"]}, "kinds"),
        ({"source": "bench", "kinds": ["fact", "fact"]}, "twice"),
        ({"source": "bench", "kinds": []}, "kinds"),
        ({"source": "bench", "per_kind": 0}, "per_kind"),
        ({"source": "length", "lengths": [0]}, "lengths"),
        ({"source": "length", "lengths": [32, 32]}, "twice"),
        ({"source": "file"}, "paths"),
        ({"source": "file", "paths": []}, "paths"),
        ({"source": "studies", "name": "../x"}, "name"),
        ({"source": "studies", "format": "raw"}, "format"),
        ({"source": "studies", "collection": "mine"}, "collection"),
        ({"source": "studies", "collection": "rtx3090-19", "per_kind": 2}, "remove per_kind"),
        ({"source": "random", "max_tokens": 0}, "max_tokens"),
    ],
)
def test_bad_entries_name_their_field(entry: dict[str, object], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        SPEC.validate_python(entry)


def test_schema_describes_every_field() -> None:
    schema = SPEC.json_schema()
    assert set(schema["discriminator"]["mapping"]) == {"bench", "studies", "length", "file", "sessions", "random"}
    for model in schema["$defs"].values():
        for name, field in model["properties"].items():
            assert name == "source" or field["description"], name
