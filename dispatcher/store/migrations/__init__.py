"""Schema revisions, run by `open_store`. A revision never imports the records' code: data is moved by SQL alone."""
