"""The mount as clients meet it: real FUSE, driven by shells and system calls."""
