"""Acquisition streams: one writer, a buffer, and a plan of ordinary arrays that it fills."""
