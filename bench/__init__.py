"""Benchmarks: what is fast must be shown here, not in a timed test. `make bench` prints the table and writes docs/benchmarks.md."""
