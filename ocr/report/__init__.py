"""Every HTML page of the product: one base template, one stylesheet, one way to draw a chart."""
