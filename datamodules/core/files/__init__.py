"""Expand paths, read tensor files with checksums, choose among checkpoints of a run, and make text printable."""
