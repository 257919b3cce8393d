"""Benches: ratios against references measured in the same run. Never a timed test; see run.py."""
