"""One revision a file, oldest first by number. What was released is never edited: a change is a new revision."""
