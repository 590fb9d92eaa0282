"""Why an arm is as fast as it is: where the time of each token went, which part decides, and what was predicted.

`tally` reads a run into counts and times, `parts` splits them, `reason` says in one sentence what decides, and
`account` puts it all together. Pure over what is stored; a probe, where there is one, says what forwards cost.
"""
