"""What stops the building of the site."""


class SiteError(Exception):
    """The site cannot be built as its sources are."""
