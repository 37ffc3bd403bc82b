"""Demonstrations, which recipes refer to as `module:function`; no other room imports them."""
