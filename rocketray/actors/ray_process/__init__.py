"""The Ray that a node runs on: how it is started, who may call it, whether it still answers."""
