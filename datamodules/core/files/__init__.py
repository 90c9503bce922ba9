"""Expand paths, read and write tensor files with checksums, and make text printable."""
