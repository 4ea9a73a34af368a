"""What this machine does: stages, epochs, the model's step, disk, memory and other processes."""
