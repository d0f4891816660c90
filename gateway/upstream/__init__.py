"""HTTP to the engines. The one place in the gateway that knows httpx and httptools.

A request's way: `client.EngineClient` → an httpx transport (`transport.EngineTransport`, or any
other: MockTransport in tests) → `pool.Pool` → `connection.Connection` → `exchange.Exchange`,
whose pieces go back up untouched.
"""
