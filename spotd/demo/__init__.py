"""`spotd demo`: a real daemon, real machines (of the local cloud), a real training job, and a recorded market that takes them away."""
