"""Subjects: one file for each operator."""
