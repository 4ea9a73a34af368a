"""From a folder to tar shards: plan, write, resume, verify."""
