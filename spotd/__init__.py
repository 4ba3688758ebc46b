"""spotd keeps resumable training jobs running on the cheapest capacity that will hold, and proves what it saved."""

__version__ = "0.1.0"
