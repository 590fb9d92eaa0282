"""Advice: the best configuration for a target on this machine, found within a budget of time, with proof.

Screen -> race -> confirm. The *screen* generates texts by plain decoding, prices every arm of a grid by what its drafts
would have been on them and what its steps cost, and drops what cannot win. The *race* measures the rest against plain
decoding in balanced blocks, and leaves arms out as soon as they are shown to be slower. *Confirm* measures the winner
and plain decoding in fresh sessions on other prompts; its interval is the one that is told, since nothing was chosen by
it.

Each stage is a run folder like any other, inside the folder of the advice; `advice.json` beside them says what was
asked, what became of every arm, and what is advised.
"""
