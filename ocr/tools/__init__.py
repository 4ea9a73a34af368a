"""What the command line and the scripts call: making, checking, converting and measuring data."""
