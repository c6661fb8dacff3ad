"""Figures, the head view, sliders and diagrams."""
