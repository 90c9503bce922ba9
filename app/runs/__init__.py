"""Find, check and name what runs leave on disk: run folders, checkpoints, commands to continue."""
