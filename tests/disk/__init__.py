"""Tests on temporary directories and real processes, without a mount."""
