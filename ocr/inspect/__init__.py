"""What is wrong with a detector: every error of a page with its cause, and what would help."""
