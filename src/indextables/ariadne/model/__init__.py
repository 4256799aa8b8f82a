"""What an index is: its declarations, its metadata, and the columns of its rows."""
