"""Finding out what the machine has. `probe.probe_host` runs all probes; `given.given_host` imagines a machine."""
