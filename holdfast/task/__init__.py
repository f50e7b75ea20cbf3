"""One task as data, and the rules that change it. Pure: no clock, no I/O."""
