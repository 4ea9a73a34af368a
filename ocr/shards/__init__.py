"""Tar shards: where they are, which samples they hold, reading and writing them."""
