"""Check environments and convert their spaces. Modules used by worker processes import no torch."""
