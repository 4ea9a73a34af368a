"""The queueing model that predicts an epoch from what was measured."""
