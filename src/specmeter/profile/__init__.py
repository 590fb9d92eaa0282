"""The match-length profile: how many tokens a draft model guesses right from every place of a text, and what follows.

Along a text t_0 ... t_(n-1) a greedy draft that starts after t_(i-1) agrees for L(i) tokens. As long as it agrees its
tokens *are* the text, so one pass of the draft over the text tells every L(i): it is the number of matches in a row
from position i on, where position j matches if the draft's best token after prompt and t_0 ... t_(j-1) is t_j.

A step of speculative decoding from there drafts d tokens and accepts min(L(i), d), whatever it did before. So one
profile replays any gamma (`replay`), without the target and to the token: what a server counted can be held against it
(the check `replay-differs`), and what another gamma would give is known before it is measured.
"""
