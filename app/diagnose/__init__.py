"""Say where the time of an iteration goes, and what to change."""
