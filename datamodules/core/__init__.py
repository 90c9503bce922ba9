"""What modules, callbacks and the program share with the data: no environment and no loop, only types and files."""
