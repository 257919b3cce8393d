"""Whole programs, and the real CLIs behind fake model servers."""
