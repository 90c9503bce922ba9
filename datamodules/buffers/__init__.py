"""Replay buffers, sequence buffers, sum tree and their storage."""
