"""Stand-ins for what zoefs talks to, faithful to the protocol and no more."""
