"""zoefs: every agent CLI is a directory, and everything one can do to an agent is a read or a write."""

__version__ = "0.1.0"
