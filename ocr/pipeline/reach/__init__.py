"""What the output of a stage depends on: its state, its code, and all that this reaches."""
