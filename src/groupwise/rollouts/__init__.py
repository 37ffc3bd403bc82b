"""Environment x sampler -> groups: prompts are played, scored, and leave as text-free rewards.

`collect` is the whole of it; `case_of` is what a verifier reads of a rollout. Left out: which
prompts are played (the recipe's order, or an algorithm's keep rule) and what is learned from them.
"""

from groupwise.rollouts.collect import Timer, collect, no_timer
from groupwise.rollouts.judged import case_of

__all__ = ["Timer", "case_of", "collect", "no_timer"]
