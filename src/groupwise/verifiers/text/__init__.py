"""Verifiers of the text itself: instructions, format, language, length, patterns, JSON."""
