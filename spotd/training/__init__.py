"""What a training script may import: the notice to stop, and a place to report progress. Standard library only."""
