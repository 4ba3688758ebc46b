"""The demonstration: a daemon, the local provider and a training job that survives its reclaims, on this machine."""
