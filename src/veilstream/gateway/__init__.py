"""The gateway: readings in, releases out. `core` knows no protocol; pipe, mqtt and http are transport only."""
