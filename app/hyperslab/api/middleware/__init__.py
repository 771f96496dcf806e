"""Middleware, plain ASGI. The order of a request: edge, access, cors, metrics, problems, replay."""
