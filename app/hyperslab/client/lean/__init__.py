"""HTTP/1.1 over plain TCP with little between the socket and the caller's memory (ADR 0018).

httptools parses heads and chunked bodies; a body of known length is received straight into the caller's buffer.
"""
