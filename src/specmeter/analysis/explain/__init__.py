"""Explains why an arm is as fast as it is: where the time of each token went, and which part decides.

`parts` splits times, `memory_price` says what a draft takes in memory, and `account` puts all of it together. A probe,
if there is one, says what forwards cost.
"""
