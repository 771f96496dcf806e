"""HTTP only: from a request to one call of a use case, and from its answer or error back to HTTP."""
