"""cache: what the fixed stages made of a page, one copy per machine, kept between runs, verified before use."""
