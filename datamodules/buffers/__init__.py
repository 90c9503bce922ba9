"""Replay buffers and their storage."""
