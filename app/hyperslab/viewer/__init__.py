"""The viewer page: static files that speak to the service's own HTTP API, and nothing else."""
