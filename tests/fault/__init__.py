"""The fault harness (marker fault, `make fault`): kills, races and damaged files, many times each, counts printed.

A test repeats one fault, counts the cases that kept what they had to keep, prints the count with `print_count`, and
fails unless all did. To add a fault, add a file with a test marked `fault`.
"""


def print_count(fault: str, held: int, cases: int) -> None:
    """Print how many cases of a fault held; pytest shows it because `make fault` passes `-s`."""
    print(f"\nfault: {fault}: {held} of {cases} held", flush=True)
