"""Environment x sampler -> groups: prompts are played, scored, and leave as text-free rewards."""

from groupwise.rollouts.collect import Timer, collect, no_timer
from groupwise.rollouts.judged import case_of

__all__ = ["Timer", "case_of", "collect", "no_timer"]
