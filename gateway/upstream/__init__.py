"""HTTP to the engines. The one place in the gateway that knows httpx and httptools.

A request's way: `client.EngineClient` → `transport.EngineTransport` → `pool.Pool` →
`connection.Connection` → `exchange.Exchange`, which goes back up as the answer, its pieces
untouched.
"""
