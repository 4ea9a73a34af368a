"""Outlines of words for the scores and the boxes."""

import numpy as np


def box(x, y, width, height):
    return np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]], dtype=np.float64)


def turned(points, angle):
    """Around the middle, by an angle in radians."""
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (points - points.mean(axis=0)) @ matrix.T + points.mean(axis=0)


def arc(centre, outer, inner, reach):
    """A line of text along a circle, `reach` radians to both sides of its top."""
    return np.array(
        [
            [centre[0] + radius * np.sin(angle), centre[1] - radius * np.cos(angle)]
            for radius, way in ((outer, 1), (inner, -1))
            for angle in np.linspace(-reach, reach, 12)[::way]
        ]
    )
