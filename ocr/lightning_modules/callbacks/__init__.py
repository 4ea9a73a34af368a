"""What happens around the steps: the epoch's table, the progress bar, drawn predictions."""
