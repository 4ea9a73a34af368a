"""Every compiled loop over pixels and points. None of them holds the GIL."""
