"""The values that cross between client, workflow and activities, and those that are recorded."""
