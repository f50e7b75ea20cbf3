"""What pages and API show, as pure maps over what a reader has read."""
