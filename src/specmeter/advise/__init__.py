"""Advice: the best configuration for a target on this machine, found within a budget of time, with proof.

Screen -> confirm, on whole answers (`duel`): in the *screen* the model answers prompts without speculation, and every
configuration of a grid is predicted by what its drafts would have been on these answers and what its steps cost. The
*confirmation* measures one or two finalists on other prompts.

Screen -> race -> confirm, if text is the same all along (bench models), or several clients share the machine: the
*race* measures what is promising in balanced blocks and leaves out what is shown to be slower; the *confirmation*
measures the winner in fresh sessions on other prompts.

Each stage is a run folder like any other, inside the folder of the advice; `advice.json` beside them says what was
asked, what became of every configuration, and what is advised.
"""
