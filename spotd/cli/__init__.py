"""The commands that people type, one file per verb; all but a few talk to the socket of the daemon."""
