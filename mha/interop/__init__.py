"""Weights of other libraries.

Taught in: chapter 07.
"""
