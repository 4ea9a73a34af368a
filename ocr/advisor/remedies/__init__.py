"""Changes of the config that could make training faster: how to try each, and what it is predicted to gain."""
