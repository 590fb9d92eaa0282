"""Why an arm is as fast as it is: where the time of each token went, which part decides, and what was predicted."""
