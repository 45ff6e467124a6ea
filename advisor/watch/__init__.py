"""Noticing what happens in model folders: events, polling where events do not arrive, and when a file has settled."""
