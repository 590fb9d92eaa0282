"""Whether a run can be believed: checks, what they need to look at, findings and verdicts."""
