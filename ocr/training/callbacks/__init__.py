"""What happens around the training steps: reports, drawings, averages, interrupts."""
