"""Types, protocols, seeds, phases and file access shared by data modules, algorithms, callbacks and the application."""
