"""Environments of other libraries, behind this project's own interface; each an optional extra.

Found by the entry point group `groupwise.environments`; nothing below imports this room.
"""
