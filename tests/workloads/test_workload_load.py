"""Loading prompts: the same choice everywhere, hashes of the very text, exact lengths or an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from specmeter.errors import ExperimentError
from specmeter.record import Prompt
from specmeter.workloads import WorkloadSpec, count, load, needs_tokenizer
from specmeter.workloads.spec import ALL_KINDS
from specmeter.workloads.texts import Tokenizer, cut

SPEC: TypeAdapter[Any] = TypeAdapter(WorkloadSpec)


def spec(**fields: object) -> WorkloadSpec:
    return SPEC.validate_python(fields)


class Words:
    """A tokenizer of words with a leading space, as BPE vocabularies have them; unknown words fall to bytes."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {bytes([byte]): byte for byte in range(256)}
        self.pieces = list(self.known)

    def tokenize(self, text: str) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in re.findall(r" ?[A-Za-z]+|.", text, re.DOTALL):
            if len(piece) > 1 and piece.isascii() and hash_of(piece) % 4:
                ids.append(self.known.setdefault(piece.encode(), len(self.known)))
                if len(self.known) > len(self.pieces):
                    self.pieces.append(piece.encode())
            else:
                ids.extend(piece.encode())
        return tuple(ids)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return b"".join(self.pieces[token] for token in token_ids).decode(errors="replace")


def hash_of(text: str) -> int:
    return sha256(text.encode()).digest()[0]


def load_with_words(*specs: WorkloadSpec, base_dir: Path = Path()) -> tuple[tuple[Prompt, ...], Words]:
    words = Words()
    return load(specs, base_dir=base_dir, tokenize=words.tokenize, detokenize=words.detokenize), words


@pytest.mark.parametrize(("source", "form"), [("bench", "completion"), ("studies", "chat")])
def test_packaged_prompts(source: str, form: str) -> None:
    prompts = load([spec(source=source, per_kind=3)])
    assert [p.kind for p in prompts] == [kind for kind in ALL_KINDS for _ in range(3)]
    assert len({p.id for p in prompts}) == len({p.text for p in prompts}) == 15
    for prompt in prompts:
        assert prompt.id.startswith(f"{source}/{prompt.kind}-")
        assert (prompt.workload, prompt.format) == (source, form)
        assert prompt.sha256 == sha256(prompt.text.encode("utf-8")).hexdigest()


def test_choice_depends_on_the_seed_and_grows_with_the_number() -> None:
    few, more, other = (
        {p.id for p in load([spec(source="bench", kinds=["fact"], per_kind=n, seed=seed)])}
        for n, seed in ((4, 1), (8, 1), (4, 2))
    )
    assert few < more
    assert few != other


def test_every_kind_of_the_studies_has_eight_prompts_for_each_half_of_an_advice() -> None:
    prompts = load([spec(source="studies", per_kind=16)])
    assert len(prompts) == len({prompt.text for prompt in prompts}) == 80
    assert all(prompt.text == prompt.text.strip() for prompt in prompts)
    assert any("\u4e00" <= character <= "\u9fff" for p in prompts if p.kind == "zh" for character in p.text)


def test_prompts_that_were_added_change_nothing_for_experiments_of_few() -> None:
    first = {f"studies/{kind}-{number}" for kind in ALL_KINDS for number in range(6)}
    assert {prompt.id for prompt in load([spec(source="studies", per_kind=6)])} == first
    two = [prompt.id for prompt in load([spec(source="studies", kinds=["fact", "zh"], per_kind=2)])]
    assert two == ["studies/fact-3", "studies/fact-4", "studies/zh-0", "studies/zh-4"]
    assert first < {prompt.id for prompt in load([spec(source="studies", per_kind=7)])}


def test_a_collection_is_taken_as_a_whole_under_its_own_names() -> None:
    both = [
        spec(source="studies", name=name, collection="rtx3090-19", max_tokens=n) for name, n in (("a", 3), ("b", 9))
    ]
    prompts = load(both)
    assert SPEC.validate_json(SPEC.dump_json(both[0])) == both[0]
    assert count(both) == {"a": 10, "b": 10}
    assert [p.id for p in prompts[:10]] == [
        *("a/short_greet", "a/short_q", "a/medium_chat", "a/medium_rec", "a/reasoning", "a/long_explain"),
        *("a/code_small", "a/multi_turn_1", "a/multi_turn_2", "a/zh_cn"),
    ]
    assert [p.sha256 for p in prompts[:10]] == [p.sha256 for p in prompts[10:]]
    assert {p.format for p in prompts} == {"chat"}
    assert len({p.text for p in prompts}) == 10
    assert any("\u4e00" <= character <= "\u9fff" for character in prompts[9].text)
    assert max(prompts, key=lambda p: len(p.text)).id.endswith("reasoning")


def test_too_many_prompts_are_refused_with_the_number_there_is() -> None:
    with pytest.raises(ExperimentError, match="has 16 prompts of kind fact") as caught:
        load([spec(source="studies", per_kind=17)])
    assert "per_kind to 16" in caught.value.fix


def test_max_tokens_of_the_workload() -> None:
    assert {p.max_tokens for p in load([spec(source="bench", max_tokens=7)])} == {7}


def test_names_must_differ() -> None:
    with pytest.raises(ExperimentError, match="'bench' is used twice"):
        load([spec(source="bench"), spec(source="bench", seed=2)])
    assert len(load([spec(source="bench"), spec(source="bench", name="more", seed=2)])) == 20


def test_lengths_are_exact() -> None:
    lengths = [1, 32, 100, 512, 1024]
    prompts, words = load_with_words(spec(source="length", lengths=lengths, per_length=2))
    assert [p.token_count for p in prompts] == [n for n in lengths for _ in range(2)]
    assert [len(words.tokenize(p.text)) for p in prompts] == [p.token_count for p in prompts]
    assert prompts[2].id == "length/32-0"
    assert prompts[2].kind == "length-32"
    assert len({p.text for p in prompts}) == 10
    assert not any("\ufffd" in p.text for p in prompts)
    assert load_with_words(spec(source="length", lengths=lengths, per_length=2))[0] == prompts


def test_lengths_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three four five six seven", encoding="utf-8")
    prompts, words = load_with_words(spec(source="length", lengths=[5], file="text.txt"), base_dir=tmp_path)
    assert len(words.tokenize(prompts[0].text)) == 5
    with pytest.raises(ExperimentError, match=r"0 of 1 prompts of exactly 500 tokens in .*text\.txt"):
        load_with_words(spec(source="length", lengths=[500], file="text.txt"), base_dir=tmp_path)
    with pytest.raises(ExperimentError, match=r"no\.txt: no such file"):
        load_with_words(spec(source="length", file="no.txt"), base_dir=tmp_path)


def test_random_tokens_are_exact_and_tagged() -> None:
    prompts, words = load_with_words(spec(source="random", lengths=[16, 300], per_length=2))
    assert [len(words.tokenize(p.text)) for p in prompts] == [16, 16, 300, 300]
    assert all(p.random_tokens for p in prompts)
    assert [p.kind for p in prompts] == ["random-16", "random-16", "random-300", "random-300"]
    assert len({p.text for p in prompts}) == 4
    assert not any("\ufffd" in p.text for p in prompts)


def test_a_tokenizer_that_never_counts_right_is_found_out() -> None:
    always_two = Tokenizer(lambda _: (1, 2), lambda _: "x")
    assert cut("some text", 3, always_two) is None
    with pytest.raises(ExperimentError, match="of exactly 32 tokens"):
        load([spec(source="length", lengths=[32])], tokenize=lambda _: (1,) * 40, detokenize=lambda _: "x")
    with pytest.raises(ExperimentError, match="in random tokens"):
        load([spec(source="random")], tokenize=lambda _: (), detokenize=lambda _: "")


def test_cut_moves_where_tokens_merge() -> None:
    # Pairs of letters are one token; the text of three ids cut from the middle of a pair counts differently.
    odd = Tokenizer(lambda text: tuple(range((len(text) + 1) // 2)), lambda ids: "a" * (2 * len(ids) + 2))
    text = cut("a" * 40, 5, odd)
    assert text is not None
    assert len(odd.tokenize(text)) == 5


def test_exact_lengths_need_a_tokenizer() -> None:
    assert [needs_tokenizer(spec(source=s)) for s in ("bench", "studies", "length", "random")] == [
        False,
        False,
        True,
        True,
    ]
    with pytest.raises(ExperimentError, match="need a loaded model"):
        load([spec(source="length")])


def test_count_agrees_with_load(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Hello", encoding="utf-8")
    specs = [
        spec(source="bench", kinds=["code", "zh"]),
        spec(source="studies"),
        spec(source="length", lengths=[8, 16], per_length=2),
        spec(source="random"),
        spec(source="file", paths=["a.txt"]),
    ]
    prompts, _ = load_with_words(*specs, base_dir=tmp_path)
    counts = count(specs, base_dir=tmp_path)
    assert counts == {"bench": 4, "studies": 20, "length": 4, "random": 1, "file": 1}
    assert sum(counts.values()) == len(prompts)
    with pytest.raises(ExperimentError, match="no such file"):
        count([spec(source="file", paths=["b.txt"])], base_dir=tmp_path)
