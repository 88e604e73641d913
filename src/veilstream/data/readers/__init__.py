"""Readers: one file a format. A new one is a file here with a READER in it, and that READER in the list."""

from veilstream.data.readers import csv_table, geolife, gpx, json_lines

# a file whose ending says nothing is given to the first that takes its beginning
READERS = (geolife.READER, gpx.READER, json_lines.READER, csv_table.READER)
