"""Know, don't guess: what the pipeline costs on this machine, what would help, and whether it did.

Imports go one way: commands, live -> report -> remedies -> measure -> catalogue, model.
"""
