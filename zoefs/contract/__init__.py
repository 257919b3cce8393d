"""What mount, supervisor, conductor and command line share. Pure: no clock, no randomness, no I/O."""
