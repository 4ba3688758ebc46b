"""What runs on an instance: the agent, and the shim that owns the job's processes.

Standard library only, Python >= 3.9, shipped as one zip. Nothing here reads package
files by path, so every module works from inside that zip. The wire protocol is ``docs/agent-protocol.md``.
"""
