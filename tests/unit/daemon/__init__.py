"""Tests of the daemon's shell."""
