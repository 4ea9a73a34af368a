"""cache: what the fixed stages made of a page, one copy per machine, kept between runs, proven before use."""
