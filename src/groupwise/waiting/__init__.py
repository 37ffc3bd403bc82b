"""Deadlines, worker processes, threads and the event loop: every wait of the library ends here."""
