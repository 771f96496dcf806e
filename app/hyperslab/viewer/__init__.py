"""Viewer page: static files that use the service's HTTP API."""
