"""ReAct: reasoning, actions and observations in text."""
