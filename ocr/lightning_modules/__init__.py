"""Training, validation and prediction as Lightning modules and callbacks."""
