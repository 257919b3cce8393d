"""The disk habits that mount and supervisor share: whole files, journals, locks, and who a process is."""
