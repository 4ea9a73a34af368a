"""`artificial` can be imported from the folders below, because pytest puts the folder of a conftest on the path."""
