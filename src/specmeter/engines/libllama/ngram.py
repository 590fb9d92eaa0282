"""Drafts looked up in the text itself: llama.cpp's `ngram-simple`, token for token, without its search.

The last n tokens are looked for earlier in the text (prompt and everything generated so far), from the newest match
to the oldest, and what followed there is the draft. Of a history of L tokens, the last one just chosen:

- nothing is drafted before L > n + m + 2, where m = `longest`;
- a match starts at 1 <= j <= L - n - 2: the very first token of a text never starts one, and neither does the
  n-gram one place before the last;
- the draft is the min(m, L - 1 - (j + n)) tokens after the newest match, without the last token of the history, and
  *nothing* where that is less than n: an older match is not tried. So m < n never drafts anything.

llama.cpp compares with every place of the text in every step. Here each n-gram's hash leads to its newest place, and
each place to the one before it with the same hash: a step costs a few microseconds however long the text is.

Read in llama.cpp's common/ngram-map.cpp (common_ngram_simple_draft), of the version that this package pins.
Prompt lookup as such: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.errors import UsageError


class NgramLookup:
    """One sequence's n-grams. `n` is the length that is looked up (`ngram_n`), `longest` of a draft (`gamma`)."""

    def __init__(self, n: int, longest: int) -> None:
        if n < 1 or longest < 1:
            raise UsageError(
                f"ngram_n is {n} and gamma {longest}: both must be at least 1", fix="give numbers of tokens"
            )
        self._n = n
        self._longest = longest
        self._newest: dict[int, int] = {}
        self._before: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Forget the text: another one begins."""
        self._newest.clear()
        self._before = [0]
        """Place -> the place before it whose n-gram has the same hash; 0: none. As long as places are known."""

    def draft(self, history: Sequence[int], most: int) -> list[int]:
        """Tokens that may follow `history`, at most `most`; none where nothing was found.

        `history` is the prompt and everything generated, the token just chosen included; between calls it may only
        grow at its end (`reset` otherwise; a shorter history is noticed and raises `UsageError`).
        """
        n, last_start = self._n, len(history) - self._n - 2
        if len(self._before) > 1 and last_start < len(self._before) - 1:
            raise UsageError("the history became shorter between two drafts", fix="call reset() before another text")
        for start in range(len(self._before), last_start + 1):
            key = hash(tuple(history[start : start + n]))
            self._before.append(self._newest.get(key, 0))
            self._newest[key] = start
        if len(history) <= n + self._longest + 2:
            return []
        pattern = tuple(history[-n:])
        match = self._newest.get(hash(pattern), 0)
        while match and tuple(history[match : match + n]) != pattern:
            match = self._before[match]
        if not match:
            return []
        length = min(self._longest, len(history) - 1 - (match + n))
        if length < n:
            return []
        return list(history[match + n : match + n + min(length, max(0, most))])
