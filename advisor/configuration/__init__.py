"""The user's configuration: one TOML file, conf.d after it, every key with its meaning."""
