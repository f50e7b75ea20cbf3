"""The pages of the desk, with NiceGUI."""
