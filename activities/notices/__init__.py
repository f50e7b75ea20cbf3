"""Messages to people when a task waits for them: notifiers, and the activity that calls them."""
