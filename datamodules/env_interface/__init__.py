"""Check environments, convert their spaces, and draw cells. Modules used by worker processes import no torch."""
