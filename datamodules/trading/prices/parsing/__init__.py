"""Read the text of a price file: settings, cells, columns, numbers and times; pandas does the reading.

`table` reads cells with their line numbers, `columns` identifies them, `numbers` and `times` parse them. An addition to
the accepted formats is one more name in `columns.NAMES` or one more format in `times.FORMATS`, and a file in
`tests/datamodules/trading/prices/test_vendor_files.py`.
"""
