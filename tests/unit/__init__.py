"""Pure tests: no file, no process, no clock; the whole tier in seconds."""
