"""Write what all trainings read: both tokenizers and the training text as token ids, under `work/`."""

from __future__ import annotations

from itertools import islice

import numpy as np

from benchtext import stream
from cores import OTHER_VOCABULARY, TEXT_SEED, VOCABULARY
from tokenizer import END, train_tokenizer
from train import WORK

TOKENIZER_DOCUMENTS = 4_000
TOKENS = {VOCABULARY: 9_500_000, OTHER_VOCABULARY: 1_000_000}


def main() -> None:
    WORK.mkdir(exist_ok=True)
    for vocabulary, wanted in TOKENS.items():
        seed = TEXT_SEED + 1 + (vocabulary == OTHER_VOCABULARY)
        tokenizer = train_tokenizer(islice(stream(seed), TOKENIZER_DOCUMENTS), vocabulary)
        tokenizer.save(str(WORK / f"tokenizer-{vocabulary}.json"))
        end = tokenizer.token_to_id(END)
        pieces: list[np.ndarray] = []
        have, texts = 0, stream(TEXT_SEED)
        while have < wanted:
            for encoding in tokenizer.encode_batch(list(islice(texts, 500))):
                pieces.append(np.array([*encoding.ids, end], dtype=np.uint16))
                have += len(pieces[-1])
        np.save(WORK / f"tokens-{vocabulary}.npy", np.concatenate(pieces)[:wanted])
        print(f"vocabulary {vocabulary}: {wanted} tokens")


if __name__ == "__main__":
    main()
