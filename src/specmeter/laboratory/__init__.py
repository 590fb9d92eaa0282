"""One run from beginning to end: plan, refuse, measure, check, close; and whether this machine can measure."""
