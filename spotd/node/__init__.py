"""What runs on an instance: the agent and the shim of the job. Standard library only, Python 3.9 syntax."""
