"""HTTP layer: translates requests to calls of use cases, and their results and errors to responses."""
