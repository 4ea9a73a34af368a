"""Tar shards: their members, their index, where they are stored, and fetching them ahead of their use."""
