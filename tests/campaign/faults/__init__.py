"""Faults that are injected, a file per kind; importing one registers its classes."""
