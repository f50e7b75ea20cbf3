"""What Agent is made of: checks of its fields, its instructions, what it offers its model."""
