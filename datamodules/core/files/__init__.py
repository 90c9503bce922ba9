"""Read and write files: paths as users write them, tensors with checksums, printable text."""
