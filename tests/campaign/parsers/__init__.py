"""Parsers that are fuzzed, a file per group; importing one registers its parsers."""
