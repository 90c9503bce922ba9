"""Find, check and name the files of runs: run folders, checkpoints, commands to continue."""
