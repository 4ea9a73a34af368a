"""Geometry without pixels: packed polygons, page orientation, distance kernels."""
