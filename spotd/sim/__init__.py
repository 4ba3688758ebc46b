"""The simulated world: virtual time, simulated clouds, recorded traces, injected faults."""
