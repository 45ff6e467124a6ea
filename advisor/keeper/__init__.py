"""The wiring between stores, planner, outputs and managed files; imported by the daemon and by diff, apply and undo."""
