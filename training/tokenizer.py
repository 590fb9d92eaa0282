"""The byte-level BPE vocabulary of the bench models, cut exactly as llama.cpp's `qwen2` pre-tokenizer cuts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END, CHAT_START, CHAT_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END, CHAT_START, CHAT_END)

# The expression of llama.cpp's pre-tokenizer "qwen2". There is no normalizer: llama.cpp applies none, so that an
# accent that is written as a character of its own stays one.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def untrained(merges: Sequence[tuple[str, str]] = (), vocabulary: Mapping[str, int] | None = None) -> Tokenizer:
    """How text is cut, with the tokens of `vocabulary`, where there are any."""
    tokenizer = Tokenizer(models.BPE(dict(vocabulary), list(merges)) if vocabulary else models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if vocabulary:
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def train_tokenizer(texts: Iterator[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of exactly `vocabulary` tokens; the special ones take the last ids, as in Qwen's files."""
    tokenizer = untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    size = tokenizer.get_vocab_size()
    if size != vocabulary:
        raise ValueError(f"the tokenizer has {size} tokens, not {vocabulary}: give it more varied text")
    return tokenizer


def load(path: Path) -> Tokenizer:
    """A tokenizer saved by `Tokenizer.save`."""
    return Tokenizer.from_file(str(path))
