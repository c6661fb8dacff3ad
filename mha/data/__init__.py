"""Offline data: texts, dates, Python source, and tasks made from rules."""
