"""Chain of abstraction: reasoning with placeholders first, then the calls that fill them in."""
