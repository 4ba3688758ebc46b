"""Parses what people write (job, policy, daemon files) into the nouns, with errors that name the line and the key."""
