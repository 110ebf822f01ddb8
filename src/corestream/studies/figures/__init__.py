"""Figures of the paper, one file each: what was measured in, a matplotlib Figure out."""
