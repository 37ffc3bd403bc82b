"""Text and token ids: chat templates, encoding, decoding, stop ids and stop strings. No torch.

`Template` holds a tokenizer with its chat template and special ids; `StopStrings` finds stop
strings across token boundaries; `token_ends` finds the tokens that end parts of a text. Left out:
weights, sampling, tool-call parsing.
"""

from groupwise.templates.alignment import token_ends
from groupwise.templates.stops import StopStrings
from groupwise.templates.template import Template

__all__ = ["Template", "StopStrings", "token_ends"]
