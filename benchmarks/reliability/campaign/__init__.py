"""Faults injected into the real objects, and damaged inputs for every parser, each reproducible from its seed."""
