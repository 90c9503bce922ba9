"""The house rules as tests: sizes, names, imports. A new rule is one more test over the files in `source.py`."""
