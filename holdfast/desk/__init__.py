"""The desk: every task in a browser, an inbox for people, an HTTP API for programs."""
