"""NVIDIA DALI: which stages it runs, the graph that runs them, and a loader with the batches of every other loader."""
