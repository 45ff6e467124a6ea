"""The daemon: one loop that waits for events, signals and timers, and lets a worker do the work."""
