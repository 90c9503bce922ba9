"""The face of an older Snake system: its environment, its agent, its benchmark and its checkpoints."""
