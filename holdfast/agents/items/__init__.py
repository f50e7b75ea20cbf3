"""Items of a run, as its results name them, and the raw items of the Responses API in them."""
