"""A reader of Dolmen pools, written from docs/format alone; one file for each of its documents. scripts/read_pool.py uses it."""
