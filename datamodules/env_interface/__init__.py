"""Check environments and convert their spaces. Imports no torch where a worker process uses it."""
