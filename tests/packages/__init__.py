"""Train on the environments of real packages, each set of packages in a virtual environment of its own.

`python -m tests.packages.table` makes the table in docs/guides/packages.md; `rows` lists what is tried. To add a
package, add its pins to `PINS` and a row for each environment to `ROWS`. It takes about 20 minutes, so it is no part of
`make check`.
"""
