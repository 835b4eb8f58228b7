"""Does it learn? Tasks with a verifiable reward, several seeds, measured on prompts that never earn one.

A unit is one task, one seed and one arm on a server and a store of its own (`unit`). `tasks` and `lists` say
what is asked and what an answer earns; `arms` what is posted for it: the truth (`ours`), chance (`noise`: the
same number and size of steps, in directions that no answer chose), or a mixture with liars (`poisoned`). The
scores of the unperturbed live model on held-out prompts are compared prompt by prompt and seed by seed
(`bootstrap`).

What is finished stays in the work folder, so that an interrupted run goes on; it takes about an hour.
"""

from bench.learning.main import add_arguments, run

__all__ = ["add_arguments", "run"]
