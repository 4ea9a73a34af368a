"""GlyphFeed: the fastest way to train a text detector."""

__version__ = "0.1.0"
