"""The shell around the core: it observes, records, executes, and answers on the socket."""
